"""What pyproject.toml cannot say: all packages are found, and `data/` goes along as one more of them.

`app/` is installed as `portfolio_sdpo_app`: a package that is called `app` would be in everybody's way.
"""

from setuptools import find_packages, setup

APP = [name.replace("app", "portfolio_sdpo_app", 1) for name in find_packages(include=["app", "app.*"])]

setup(
    packages=[*find_packages(include=["portfolio_sdpo*"]), "portfolio_sdpo.bundled", *APP],
    package_dir={"portfolio_sdpo.bundled": "data", "portfolio_sdpo_app": "app"},
)
