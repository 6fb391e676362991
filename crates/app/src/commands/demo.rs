//! `polynya demo`.

use std::process::ExitCode;

use clap::Args;
use types::Result;

use crate::config::{Config, Site};
use crate::output;
use crate::service::Service;
use crate::vault;

use super::{publish, serve};

#[derive(Debug, Args)]
#[command(
    long_about = "Run the server on real input: this machine's CPU, memory, disks, network and processes each second, and \
                  every request that it answers. Nothing is made up. Everything stays in the data directory \
                  (./polynya-data), recorded rows for 24 hours.",
    after_help = "Examples:\n  polynya demo\n  polynya demo ~/notes\n  polynya demo --data ./try --listen 127.0.0.1:9000\n  \
                  polynya ingest access.log      in another terminal: your own data in the demo"
)]
pub struct Options {
    /// Your own notes: folders or files of Markdown, all published and searchable; PLACE=FOLDER puts one below an address
    #[arg(value_name = "[PLACE=]FOLDER|FILE")]
    folders: Vec<String>,
    #[command(flatten)]
    pub serve: serve::Options,
}

pub fn run(mut config: Config, options: &Options) -> Result<ExitCode> {
    config.record.enabled = true;
    let data_flag = match config.server.data.to_str() {
        Some("./polynya-data" | "polynya-data") | None => String::new(),
        Some(other) => format!(" --data {}", quoted(other)),
    };
    if !options.folders.is_empty() {
        publish::set_folders(&mut config, &options.folders, true)?;
    }
    serve::serve(&config, &options.serve, async |service| {
        let published = published(service, &config.site, &data_flag);
        output::print(&welcome(service, &data_flag, &published));
    })
}

/// Describes the folders that are published; empty if there are none.
fn published(service: &Service, site: &Site, data_flag: &str) -> String {
    let shown = |folder: &String| match vault::split_place(folder) {
        (Some(place), _) if !place.is_empty() => place.to_owned(),
        (_, path) => path.to_owned(),
    };
    let folders = &site.vault.0;
    let shown: Vec<String> = folders.iter().take(4).map(shown).collect();
    let more = match folders.len().saturating_sub(shown.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    // Folders named in the settings are published by the setting `site.publish`.
    let (what, rest) = match site.publish.0.iter().any(|pattern| pattern == "**") {
        true => ("all Markdown", "A note that says `publish: false` at its top is not."),
        false => ("what says `publish: true`", "Everything else stays private."),
    };
    match shown.is_empty() {
        true => String::new(),
        false => format!(
            "
Published: {what} in {}{more}, at {}/
{rest} Search them: polynya{data_flag} search --table vault snapshot
",
            shown.join(", "),
            service.url()
        ),
    }
}

fn welcome(service: &Service, data_flag: &str, published: &str) -> String {
    let url = service.url();
    let keys = service.engine().keys();
    let key =
        if keys.is_empty() { String::new() } else { " -H \"Authorization: Bearer $POLYNYA_KEY\"".to_owned() };
    format!(
        "\
Polynya records this machine, once a second, in {}. Four things to try:

1. Ask what it found so far:
   polynya{data_flag} sql \"SELECT time, round(value) AS busy FROM polynya.metrics WHERE name = 'cpu_busy' ORDER BY time DESC LIMIT 5\"

2. Post an event; it is acknowledged when it is durable:
   curl{key} {url}/v1/tables/events/rows -H 'content-type: application/json' -d '{{\"kind\": \"hello\", \"size\": 42}}'

3. Find it:
   curl{key} {url}/v1/sql -H 'content-type: application/json' -d '{{\"sql\": \"SELECT * FROM events\"}}'

4. Watch it live, and try its five faces:
   {url}/_/
{published}
Your own data: polynya{data_flag} ingest access.log     Stop with Ctrl-C.
",
        service.engine().dir().display()
    )
}

fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
