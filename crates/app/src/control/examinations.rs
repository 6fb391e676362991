//! Examinations of the directory by the process that has it open.

use engine::Engine;
use serde_json::json;
use types::{Error, Result};

use super::job::{self, Lines};
use crate::doctor;

/// Answers with a [`doctor::Examination`].
pub fn run(engine: &Engine) -> Result<Lines> {
    let engine = engine.clone();
    job::start("pn-doctor", move |teller| {
        // It reads everything, and readers come before it.
        let _passing = vfs::pass_through();
        let examination = doctor::examine_running(&engine, &mut |what| teller.progress(|| json!(what)))?;
        serde_json::to_value(examination)
            .map_err(|error| Error::internal("what was found cannot be told").caused_by(error))
    })
}
