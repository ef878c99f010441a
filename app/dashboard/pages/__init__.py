"""One module per page of the dashboard; each has `def render() -> None`."""
