"""The dashboard: Streamlit pages over run folders and the registry, with no figure of their own."""
