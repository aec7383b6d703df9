"""Making logs of logs, and exports of logs and back."""
