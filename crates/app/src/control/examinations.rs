//! Requests to examine the directory, served by the process that has it open.

use engine::Engine;
use serde_json::json;
use types::{Error, Result};

use super::job::{self, JobLines};
use crate::doctor;

/// Starts a job that answers with a [`doctor::Examination`].
pub fn run(engine: &Engine) -> Result<JobLines> {
    let engine = engine.clone();
    job::start("pn-doctor", move |sender| {
        // An examination reads every file once and must not evict other readers' pages from the page cache.
        let _passing = vfs::background_reads();
        let examination = doctor::examine_running(&engine, &mut |what| sender.progress(|| json!(what)))?;
        serde_json::to_value(examination)
            .map_err(|error| Error::internal("the findings cannot be sent").caused_by(error))
    })
}
