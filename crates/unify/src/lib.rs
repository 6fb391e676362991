//! No code: this crate's `Cargo.toml` names the features of third-party crates, so that they are compiled once
//! whichever of ours is built. Written by `cargo hakari generate`; see `.config/hakari.toml`.
