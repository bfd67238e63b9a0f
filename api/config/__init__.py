"""The server's options: nats-server's flags and configuration grammar, made into one frozen value."""
