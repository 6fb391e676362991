//! `polynya backup DEST`: takes a backup into a folder or an object store.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use http::Method;
use indicatif::{ProgressBar, ProgressStyle};
use lake::objects::Options as StoreOptions;
use serde_json::{Value, json};
use types::{Error, Result};

use super::restore::missing_rows_note;
use crate::cli::ServerArgs;
use crate::config::Config;
use crate::connection::DataConnection;
use crate::job;
use crate::output;
use crate::remote;
use crate::units::{ByteSize, counted, grouped};

#[derive(Debug, Args)]
#[command(
    long_about = "Take a backup of the data directory into a folder or an object store, with or without its server running: \
                  everything as of one commit, while reads and writes go on. The file `BACKUP` is written last: a backup without \
                  it is not complete.\n\nA folder must be empty or not exist yet, and lies on the server's machine; a backup that is \
                  interrupted leaves nothing in it.\n\nA backup into S3, or a store that speaks S3, takes the key from \
                  AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Every object is read back and compared. To resume an interrupted \
                  backup, repeat the command: objects that are there are not sent again. Each backup needs a prefix of its \
                  own.\n\nA backup does not contain indexes, the site or the lake: they are rebuilt after a restore. Nor does it \
                  contain rows that are only in the lake; the answer names their tables.",
    after_help = "Examples:\n  polynya backup /mnt/backups/monday\n  polynya restore /mnt/backups/monday ./restored\n  \
                  polynya backup s3://bucket/backups/monday\n  \
                  polynya backup s3://bucket/monday --s3-endpoint http://127.0.0.1:7070 --s3-region us-east-1"
)]
pub struct Options {
    /// A folder that is empty or does not exist yet, or s3://BUCKET/PREFIX
    #[arg(value_name = "DEST")]
    dest: PathBuf,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Flags for the object store of a backup or an archive.
#[derive(Clone, Debug, Default, Args)]
pub struct StoreArgs {
    /// Address of a store that speaks S3 [default: lake.s3_endpoint, else Amazon's]
    #[arg(long, value_name = "URL", help_heading = "Object store")]
    s3_endpoint: Option<String>,
    /// The bucket's region [default: lake.s3_region, else AWS_REGION]
    #[arg(long, value_name = "REGION", help_heading = "Object store")]
    s3_region: Option<String>,
}

impl StoreArgs {
    /// Returns the flags as settings of the lake, which they override.
    pub fn flags(&self) -> Vec<(String, String, String)> {
        let given = [
            ("lake.s3_endpoint", &self.s3_endpoint, "--s3-endpoint"),
            ("lake.s3_region", &self.s3_region, "--s3-region"),
        ];
        let flag = |(path, value, name): (&str, &Option<String>, &str)| {
            Some((path.to_owned(), value.clone()?, name.to_owned()))
        };
        given.into_iter().filter_map(flag).collect()
    }
}

impl Options {
    pub fn flags(&self) -> Vec<(String, String, String)> {
        self.store.flags()
    }
}

/// Makes the request to the process that has the directory open. A path becomes absolute; an object store gets the
/// credentials of this command's environment.
fn request(config: &Config, dest: &Path) -> Result<Value> {
    if let Some(uri) = remote::uri(dest) {
        let StoreOptions { endpoint, region, access_key, secret_key, session_token, .. } =
            remote::options(config);
        return Ok(json!({
            "uri": uri,
            "endpoint": endpoint,
            "region": region,
            "access_key": access_key,
            "secret_key": secret_key,
            "session_token": session_token,
        }));
    }
    let dest =
        std::path::absolute(dest).map_err(|error| Error::io(format!("finding {}", dest.display()), error))?;
    let path = dest.to_str().ok_or_else(|| {
        Error::invalid(format!("the path {} is not UTF-8", dest.display()))
            .hint("name a folder whose path is")
    })?;
    Ok(json!({ "dest": path }))
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    let body = request(config, &options.dest)?;
    let started = Instant::now();
    let bar = bar();
    let taken = super::block_on(async {
        let connection = DataConnection::open(config, &ServerArgs::default()).await?;
        connection
            .with(async |connection: &mut DataConnection| {
                job::run(super::control(connection)?, Method::POST, "/backups", &body, &mut |told| {
                    show(&bar, told)
                })
                .await
            })
            .await
    });
    bar.finish_and_clear();
    let taken = taken?;
    if options.json {
        output::print(&format!("{taken}\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let number = |name: &str| taken[name].as_u64().unwrap_or_default();
    let lacks = taken["lacks"].as_array().into_iter().flatten();
    let lacks: Vec<String> = lacks.filter_map(|line| line.as_str().map(str::to_owned)).collect();
    output::print(&format!(
        "Backed up lsn {} of {}: {} in {}, {} in {}, in {:.1} s\n{}{}Restore it with: polynya restore {} NEW_DIRECTORY\n",
        grouped(number("lsn")),
        taken["time"].as_str().unwrap_or_default(),
        counted(number("rows"), "row"),
        counted(number("tables"), "table"),
        ByteSize(number("bytes")),
        counted(number("files"), "file"),
        started.elapsed().as_secs_f64(),
        match number("found_files") {
            0 => String::new(),
            files => format!(
                "An attempt before had left {} there, {}: compared, and not sent again\n",
                counted(files, "file"),
                ByteSize(number("found_bytes"))
            ),
        },
        missing_rows_note(&lacks),
        options.dest.display(),
    ));
    Ok(ExitCode::SUCCESS)
}

/// Makes a progress bar that counts bytes. It is invisible if standard error is not a terminal.
pub fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {bytes} of {total_bytes}, {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// Shows a progress report `{done, total}` in bytes.
fn show(bar: &ProgressBar, told: &Value) {
    let number = |name: &str| told[name].as_u64().unwrap_or_default();
    // The total is an estimate: rows take another number of bytes in files than in memory.
    bar.set_length(number("total").max(number("done")));
    bar.set_position(number("done"));
}
