"""The script that Streamlit runs, from the top, whenever a page is opened or something on it is changed.

It is not in the folder above: Streamlit would take every module of a folder `pages` beside the script for a page.
"""

import importlib

# Streamlit runs this file as a script, which has no package around it; a test that imports it must not draw.
if __name__ == "__main__":
    importlib.import_module("portfolio_sdpo_app.dashboard.server.page_frame").show_page()
