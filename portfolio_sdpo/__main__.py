"""`python -m portfolio_sdpo` is the same as `portfolio-sdpo`."""

from portfolio_sdpo.cli import main

if __name__ == "__main__":
    main()
