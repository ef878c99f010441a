"""What stands on top of `portfolio_sdpo` and has no allocation logic of its own: the service.

Installed as `portfolio_sdpo_app` (see setup.py): `app` would be anybody's name.
"""
