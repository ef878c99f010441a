"""What pyproject.toml cannot say: all packages are found, and `data/` goes along as one more of them."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["portfolio_sdpo*"]), "portfolio_sdpo.bundled"],
    package_dir={"portfolio_sdpo.bundled": "data"},
)
