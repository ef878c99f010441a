"""The script that Streamlit runs, from the top, whenever somebody opens a page or changes something on it.

It is not in the folder above: Streamlit takes every module of a folder `pages` beside the script for a script as well.
"""

import importlib

# Streamlit runs this file as a script, which has no package around it; a test that imports it must not draw.
if __name__ == "__main__":
    importlib.import_module("portfolio_sdpo_app.dashboard.navigation").show_page()
