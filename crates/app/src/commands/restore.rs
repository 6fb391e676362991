//! `polynya restore SRC DEST`: makes a data directory out of a backup.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use clap::Args;
use engine::backup::{self, BackupSource, LocalFolder, Progress, RestorePoint};
use serde_json::json;
use types::{Error, Lsn, Result};
use vfs::Env;

use crate::config::Config;
use crate::control::timestamp_text;
use crate::output;
use crate::remote::{self, Remote};
use crate::units::{counted, grouped};

use super::backup::StoreArgs;

#[derive(Debug, Args)]
#[command(
    long_about = "Make a data directory out of a backup. Every file is compared with its checksum; a backup that was \
                  interrupted or damaged is refused. DEST must be empty or not exist yet; its server is started with \
                  --data DEST. A backup in S3, or in a store that speaks S3, is read with the key in AWS_ACCESS_KEY_ID and \
                  AWS_SECRET_ACCESS_KEY. Indexes, the site and the lake are rebuilt afterwards.\n\nWith --archive the commits \
                  after the backup are applied too, as far as the archived log reaches, or up to --to.",
    after_help = "Examples:\n  polynya restore /mnt/backups/monday ./restored\n  polynya serve --data ./restored\n  \
                  polynya restore /mnt/backups/monday ./then --archive /mnt/log --to 2026-11-22T09:30:00Z\n  \
                  polynya restore s3://bucket/backups/monday ./restored"
)]
pub struct Options {
    /// The backup: a folder, or s3://BUCKET/PREFIX
    #[arg(value_name = "SRC")]
    src: PathBuf,
    /// An empty folder, or one that does not exist yet
    #[arg(value_name = "DEST")]
    dest: PathBuf,
    /// The archived log (the value of log.archive), whose commits after the backup are applied too
    #[arg(long, value_name = "DIR|URI")]
    archive: Option<PathBuf>,
    /// Stop after this commit, or after the last one made by this time (UTC unless it says otherwise)
    #[arg(long, value_name = "LSN|TIME", value_parser = parse_target)]
    to: Option<RestorePoint>,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Parses the target of a restore: an lsn such as `1234`, or a time such as `2026-11-22T09:30:00Z` or `2026-11-22 09:30`.
fn parse_target(text: &str) -> std::result::Result<RestorePoint, String> {
    if let Ok(lsn) = text.replace(['_', ','], "").parse() {
        return Ok(RestorePoint::Lsn(Lsn(lsn)));
    }
    let wrong = "not the number of a commit or a time such as 2026-11-22T09:30:00Z";
    let nanos = string_to_timestamp_nanos(text).map_err(|_| wrong.to_owned())?;
    Ok(RestorePoint::Time(nanos.div_euclid(1_000)))
}

impl Options {
    pub fn flags(&self) -> Vec<(String, String, String)> {
        self.store.flags()
    }
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    if let Some(uri) = remote::uri(&options.dest) {
        return Err(Error::invalid(format!("{uri} is not a folder on this machine"))
            .hint("the backup and the archive may be in an object store; a data directory is a folder"));
    }
    let started = Instant::now();
    let bar = super::backup::bar();
    let show = &mut |progress: Progress| {
        bar.set_length(progress.total_bytes.max(progress.done_bytes));
        bar.set_position(progress.done_bytes);
        Ok(())
    };
    let env = Env::real();
    let archive = options.archive.as_deref().map(|place| open_source(config, &env, place)).transpose()?;
    let restored = open_source(config, &env, &options.src).and_then(|backup| {
        let from = backup::RestoreSources { backup: &*backup, archive: archive.as_deref() };
        backup::restore_from(&env, from, &options.dest, options.to, show)
    });
    bar.finish_and_clear();
    let restored = restored?;
    let time = timestamp_text(restored.time);
    if options.json {
        let value = json!({
            "lsn": restored.lsn.0,
            "time": time,
            "tables": restored.tables,
            "rows": restored.rows,
            "replayed": restored.replayed,
            "archive_ended": restored.is_short,
            "lacks": restored.lacks,
        });
        output::print(&format!("{value}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    output::print(&format!(
        "Restored lsn {} of {time}: {} in {}{}, in {:.1} s\n{}{}Serve it with: polynya serve --data {}\n",
        grouped(restored.lsn.0),
        counted(restored.rows, "row"),
        counted(restored.tables as u64, "table"),
        match restored.replayed {
            0 => String::new(),
            replayed => format!(", {} out of the archive", counted(replayed, "commit")),
        },
        started.elapsed().as_secs_f64(),
        match restored.is_short {
            true => "The archive ends there, before the time you named: it has no later commits.\n",
            false => "",
        },
        missing_rows_note(&restored.lacks),
        options.dest.display(),
    ));
    Ok(ExitCode::SUCCESS)
}

/// Describes the rows that a backup counts but does not contain, because they are only in the lake.
pub(super) fn missing_rows_note(lacks: &[String]) -> String {
    if lacks.is_empty() {
        return String::new();
    }
    let lines: String = lacks.iter().map(|line| format!("  {}\n", output::visible(line))).collect();
    format!(
        "Not in the backup, and readable only if the lake is as it was when the backup was taken:\n{lines}"
    )
}

/// Opens a backup or an archive: a folder, or a prefix in an object store.
fn open_source(config: &Config, env: &Env, place: &Path) -> Result<Box<dyn BackupSource>> {
    match remote::uri(place) {
        Some(uri) => Ok(Box::new(Remote::connect(uri, remote::options(config), "")?)),
        None => Ok(Box::new(LocalFolder::new(env, place))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_commit_or_a_time() {
        let nine = 1_795_338_000_000_000;
        assert_eq!(parse_target("1,234").unwrap(), RestorePoint::Lsn(Lsn(1234)));
        for text in ["2026-11-22T09:00:00Z", "2026-11-22 09:00:00", "2026-11-22T10:00:00+01:00"] {
            assert_eq!(parse_target(text).unwrap(), RestorePoint::Time(nine), "{text}");
        }
        assert_eq!(parse_target("2026-11-22").unwrap(), RestorePoint::Time(nine - 9 * 3_600_000_000));
        assert!(parse_target("yesterday").unwrap_err().contains("2026-11-22T09:30:00Z"));
    }
}
