"""What Streamlit runs, from the top, whenever somebody opens a page or touches something on it."""

import importlib

# Streamlit runs this file as a script, which has no package around it; a test that imports it must not draw.
if __name__ == "__main__":
    importlib.import_module("portfolio_sdpo_app.dashboard.frame").show()
