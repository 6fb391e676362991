//! `polynya publish`: runs the server with folders of notes as its site.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use types::{Error, Result};

use crate::config::Config;
use crate::output;
use crate::service::Service;
use crate::units::{counted, grouped};
use crate::vault;

use super::serve;

#[derive(Debug, Args)]
#[command(
    long_about = "Run the server with a folder of Markdown notes as its site: links between notes, a list of contents, \
                  backlinks, tags, a feed. A changed file is live within a second. Only notes that say `publish: true` at \
                  their top are public, unless --all is given.",
    after_help = "Examples:\n  polynya publish notes\n  polynya publish --all docs --title Handbook\n  \
                  polynya publish site=/srv/notes blog=/srv/blog --listen 0.0.0.0:8484\n\n\
                  To make it permanent, write it into polynya.toml:\n  [site]\n  vault = \"notes\"\n  publish = [\"**\"]"
)]
pub struct Options {
    /// Folders or files; PLACE=FOLDER puts one below an address
    #[arg(required = true, value_name = "[PLACE=]FOLDER")]
    folders: Vec<String>,
    /// Publish every note that does not say `publish: false`
    #[arg(long)]
    all: bool,
    /// The site's name
    #[arg(long, value_name = "TITLE")]
    title: Option<String>,
    #[command(flatten)]
    pub serve: serve::Options,
}

pub fn run(mut config: Config, options: &Options) -> Result<ExitCode> {
    set_folders(&mut config, &options.folders, options.all)?;
    if let Some(title) = &options.title {
        config.site.title.clone_from(title);
    }
    let all = config.site.publish.0.iter().any(|pattern| pattern == "**");
    serve::serve(&config, &options.serve, async |service| {
        let counted = notes(service).await;
        let said: String = match &counted {
            None => format!("The notes are still being read; they will be at {}/\n", service.url()),
            Some(notes) => vault::site_folders(&options.folders)
                .iter()
                .map(|place| sentence(place, notes, all, &service.url()))
                .collect(),
        };
        output::print(&format!("{said}Stop with Ctrl-C.\n"));
    })
}

/// Time that the first message waits for the folders to be read, at most.
const READING_PATIENCE: Duration = Duration::from_secs(20);

/// A note of the site.
#[derive(Clone, Debug)]
struct SiteNote {
    path: String,
    is_public: bool,
    is_unreadable: bool,
}

/// Waits until the folders were read and their pages were made, and returns all notes. Returns `None` after
/// [`READING_PATIENCE`].
async fn notes(service: &Service) -> Option<Vec<SiteNote>> {
    let started = Instant::now();
    while started.elapsed() < READING_PATIENCE {
        let is_read = service.folders().is_some_and(|folders| {
            let state = folders.get();
            state.settled || !state.failures.is_empty()
        });
        let root = service.engine().root();
        let table = root.table(site::TABLE).filter(|_| is_read);
        let made = table.and_then(|table| Some((table, root.derived(site::NAME, table.def().id)?)));
        // The site has reached the table's last row id, even if that row was removed again.
        if let Some((table, position)) = made
            && position.checkpoint.row.next() >= table.next_row()
            && let Some(site) = position.published::<site::Site>()
        {
            let found = |(note, is_public): (&site::Note, bool)| SiteNote {
                path: note.path().to_owned(),
                is_public,
                is_unreadable: note.is_unreadable(),
            };
            return Some(site.vault.notes().map(found).collect());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}

/// Describes how many notes of a folder are public, and the address of the folder's pages.
fn sentence(place: &vault::SiteFolder, notes: &[SiteNote], all: bool, url: &str) -> String {
    let of: Vec<&SiteNote> = notes.iter().filter(|note| place.holds(&note.path)).collect();
    let public = of.iter().filter(|note| note.is_public).count();
    let (name, at) = (&place.shown, format!("{url}{}", place.url()));
    let others = match (all, of.iter().any(|note| note.is_unreadable)) {
        (true, _) => "the others say `publish: false`, or their front matter cannot be read",
        (false, true) => "the others do not say `publish: true`, or their front matter cannot be read",
        (false, false) => "the others do not say `publish: true`",
    };
    match (of.len(), public) {
        (0, _) => format!("`{name}` has no notes yet; they will be at {at}\n"),
        (count, 0) => {
            let they = others.replacen("the others", "they", 1);
            let cure = if all { "" } else { ". `--all` publishes every note" };
            format!("None of {} of `{name}` is public: {they}{cure}.\n", counted(count as u64, "note"))
        }
        (count, public) if public < count => format!(
            "{} of {} of `{name}` {} public at {at} ; {others}.\n",
            grouped(public as u64),
            counted(count as u64, "note"),
            if public == 1 { "is" } else { "are" }
        ),
        (1, _) => format!("The note of `{name}` is public at {at}\n"),
        (count, _) => format!("All {} of `{name}` are public at {at}\n", counted(count as u64, "note")),
    }
}

/// Makes these folders the site; they replace those of the settings. Fails if one does not exist, is not a note or folder,
/// or cannot be read.
pub fn set_folders(config: &mut Config, folders: &[String], all: bool) -> Result<()> {
    for folder in folders {
        let (_, path) = vault::split_place(folder);
        // A single file that is not a note, such as a picture, has no page that would show it.
        if Path::new(path).is_file() && !site::is_note(path) {
            return Err(Error::invalid(format!("`{path}` is not a note"))
                .hint("notes end in .md; rows of a file become a table with `polynya ingest FILE`"));
        }
        // A folder of the settings may be created later. A folder that was just typed and does not exist is mistyped.
        if !Path::new(path).exists() {
            return Err(Error::not_found(format!("there is no folder or file `{path}`"))
                .hint("name a folder of Markdown notes"));
        }
        // The check comes before the data directory is opened or created.
        feeds::folder::check_folder(Path::new(path))?;
    }
    config.site.vault.0 = folders.to_vec();
    if all {
        config.site.publish.0 = vec!["**".to_owned()];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message was "notes is at …" even if none of the notes was public, and it named the site's top address for folders
    /// that are published below a place.
    #[test]
    fn public_notes_are_counted_for_each_folder_with_their_address() {
        let found =
            |path: &str, is_public, is_unreadable| SiteNote { path: path.into(), is_public, is_unreadable };
        let mut notes = vec![
            found("top/a.md", true, false),
            found("top/b.md", false, false),
            found("c d/c.md", false, false),
        ];
        let places = vault::site_folders(&[
            "top=/none/priv".to_owned(),
            "c d=/none/e".to_owned(),
            "/none/f".to_owned(),
        ]);
        let said: Vec<String> =
            places.iter().map(|place| sentence(place, &notes, false, "http://h")).collect();
        assert_eq!(
            said,
            [
                "1 of 2 notes of `/none/priv` is public at http://h/top/ ; the others do not say `publish: true`.\n",
                "None of 1 note of `/none/e` is public: they do not say `publish: true`. `--all` publishes every note.\n",
                "`/none/f` has no notes yet; they will be at http://h/f/\n",
            ]
        );
        // A note that says `publish: true` is private if its front matter cannot be read.
        notes[1].is_unreadable = true;
        assert_eq!(
            sentence(&places[0], &notes, false, "http://h"),
            "1 of 2 notes of `/none/priv` is public at http://h/top/ ; the others do not say `publish: true`, or their front matter cannot be read.\n"
        );
        let alone = vault::site_folders(&["notes".to_owned()]);
        let open = [found("a.md", true, false), found("x/b.md", true, false)];
        assert_eq!(
            sentence(&alone[0], &open, true, "http://h"),
            "All 2 notes of `notes` are public at http://h/\n"
        );
    }
}
