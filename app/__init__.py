"""The REST service and the dashboard, on top of `portfolio_sdpo` and without allocation logic of their own.

Installed as `portfolio_sdpo_app` (see setup.py), since `app` is too common a name for an installed package.
"""
