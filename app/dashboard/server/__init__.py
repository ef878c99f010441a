"""What is handed to Streamlit's server: the script that it runs, and the document of the first screen."""
