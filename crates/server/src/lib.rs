//! HTTP: TLS, routes, content negotiation, watch framing, discovery, health.
