//! Unifies the features of third-party crates; holds no code. Its `Cargo.toml` names the features, so that each of those
//! crates is compiled only once, whether one crate of the workspace is built or all. Written by `cargo hakari generate`;
//! see `.config/hakari.toml`.
