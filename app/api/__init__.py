"""The REST service: today's weights of the champion, checked, audited and never served silently when out of date."""
