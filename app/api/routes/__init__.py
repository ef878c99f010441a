"""The routes of the service, one module for each tag of the OpenAPI document."""
