//! `polynya config`: prints the effective settings, or an example file.

use std::process::ExitCode;

use clap::Args;
use types::Result;

use crate::config::{self, Config};
use crate::output;

#[derive(Debug, Args)]
#[command(
    long_about = "Print the effective settings and where each came from: the defaults, then polynya.toml, then \
                  POLYNYA_… variables, then flags. What is printed is a valid polynya.toml.",
    after_help = "Examples:\n  polynya config                           the effective settings and their sources\n  \
                  polynya config --example > polynya.toml  a file to start from, every setting explained\n  \
                  POLYNYA_LISTEN=[::1]:80 polynya config   the effect of a variable"
)]
pub struct Options {
    /// Print a file with every setting, its meaning and its default
    #[arg(long)]
    example: bool,
    /// Print one JSON object a setting
    #[arg(long, conflicts_with = "example")]
    json: bool,
}

pub fn run(config: &Config, options: &Options) -> Result<ExitCode> {
    if options.example {
        output::print(&config::example());
    } else if options.json {
        for (setting, value, source) in config.values() {
            let line = serde_json::json!({
                "name": setting.path, "value": value, "source": source, "variable": setting.env, "help": setting.help,
            });
            output::print(&format!("{line}\n"));
        }
    } else {
        output::print(&config.explain());
    }
    Ok(ExitCode::SUCCESS)
}
