//! The site of a server: the feed of folders into its vault, and the materializer that makes pages of the vault.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::Engine;
use feeds::folder::{self, Feed, FolderRoot, Limits};
use serde_json::json;
use server::{Component, Figure, Report};
use types::{Error, Result};

use crate::config::Site;

/// The running feed of a server's site.
pub struct Vault {
    feed: Option<Feed>,
}

impl Vault {
    /// Starts the feed and the materializer. Must be called before the server answers requests, because notes that are no
    /// longer public are withdrawn first.
    pub fn start(engine: &Engine, settings: &Site) -> Result<Vault> {
        let options = options(settings);
        let parsed = Arc::new(site::ParsedNotes::default());
        let rule = options.rule().map_err(explain)?;
        let materializer = site::Materializer::new(options, parsed.clone()).map_err(explain)?;
        let roots = roots(&settings.vault.0)?;
        let feed = match roots.is_empty() {
            // Without folders, the vault may still have notes of an earlier run, or rows that were written by other means.
            true => {
                folder::reconcile(engine, site::TABLE, &rule)?;
                None
            }
            false => {
                let options = folder::Options {
                    table: site::TABLE.to_owned(),
                    roots,
                    rule,
                    parsed,
                    limits: Limits::default(),
                    watch: true,
                };
                Some(Feed::start(engine.clone(), options)?)
            }
        };
        engine.register(Arc::new(materializer))?;
        Ok(Vault { feed })
    }

    /// Returns the feed's part of `/ready` and `/metrics`.
    pub fn part(&self) -> Option<Arc<dyn Component>> {
        self.feed.as_ref().map(|feed| Arc::new(Folders(feed.status())) as Arc<dyn Component>)
    }

    pub fn folders(&self) -> Option<folder::Status> {
        self.feed.as_ref().map(Feed::status)
    }

    pub fn stop(self) {
        if let Some(feed) = self.feed {
            feed.stop();
        }
    }
}

fn explain(error: Error) -> Error {
    error.with("settings", "[site]")
}

fn options(settings: &Site) -> site::Options {
    site::Options {
        title: settings.title.clone(),
        description: settings.description.clone(),
        language: settings.language.clone(),
        base_url: Some(settings.base_url.clone()).filter(|url| !url.is_empty()),
        publish: settings.publish.0.clone(),
        raw_html: settings.raw_html,
        line_breaks: settings.line_breaks,
        // The search page, which the crate `server` answers.
        search: Some("/".to_owned()),
        ..site::Options::default()
    }
}

/// Splits `PLACE=PATH` into the place, if there is one, and the path. A text that as a whole is an existing path has no
/// place.
pub fn split_place(given: &str) -> (Option<&str>, &str) {
    match given.split_once('=') {
        Some((place, path)) if !Path::new(given).exists() => (Some(place), path),
        _ => (None, given),
    }
}

/// A folder or file of the site, and its place there.
pub struct SiteFolder {
    pub shown: String,
    /// Prefix of its notes' paths in the vault; empty for the top.
    prefix: String,
    /// Path in the vault if this is a single file.
    file: Option<String>,
    /// Places of other folders below this one, whose notes do not belong to it.
    within: Vec<String>,
}

impl SiteFolder {
    /// Returns true if the note at this path of the vault comes from this folder or file.
    pub fn holds(&self, path: &str) -> bool {
        let below = |prefix: &str| {
            prefix.is_empty() || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
        };
        match &self.file {
            Some(file) => file == path,
            None => below(&self.prefix) && !self.within.iter().any(|other| below(other) || other == path),
        }
    }

    /// Returns the path of the page that lists its notes, as in a URL.
    pub fn url(&self) -> String {
        let parts = self.prefix.split('/').filter(|part| !part.is_empty());
        parts.fold("/".to_owned(), |url, part| format!("{url}{}/", crate::client::escaped(part)))
    }
}

/// Returns the places of folders that [`Vault::start`] has accepted; none if one of them is invalid.
pub fn site_folders(given: &[String]) -> Vec<SiteFolder> {
    let Ok(roots) = roots(given) else { return Vec::new() };
    let file = |root: &FolderRoot| {
        let name = root.path.file_name()?.to_str().filter(|_| root.path.is_file())?;
        let prefix = root.prefix.trim_matches('/');
        Some(if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") })
    };
    let whole = |root: &FolderRoot| file(root).unwrap_or_else(|| root.prefix.trim_matches('/').to_owned());
    let place = |(at, root): (usize, &FolderRoot)| {
        let prefix = root.prefix.trim_matches('/').to_owned();
        let others =
            roots.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| whole(other));
        let within = others.filter(|other| other.len() > prefix.len()).collect();
        SiteFolder { shown: split_place(&given[at]).1.to_owned(), prefix, file: file(root), within }
    };
    roots.iter().enumerate().map(place).collect()
}

/// Parses folders written as `FOLDER`, `FILE` or `PLACE=FOLDER`. A single folder is the site's top; of several folders, each
/// gets its own name as its place. Fails for a folder that belongs to a database, and for a place that the server uses
/// itself.
fn roots(given: &[String]) -> Result<Vec<FolderRoot>> {
    given
        .iter()
        .map(|text| {
            let (place, path) = split_place(text);
            let path = PathBuf::from(path);
            folder::check_folder(&path)?;
            let own_name = || {
                let path = std::path::absolute(&path).ok()?;
                path.file_name()?.to_str().map(str::to_owned)
            };
            let prefix = match place {
                Some(place) => place.to_owned(),
                None if given.len() == 1 || path.is_file() => String::new(),
                None => own_name().ok_or_else(|| {
                    Error::invalid(format!("`{text}` has no name for its address")).hint("write PLACE=FOLDER")
                })?,
            };
            if site::Options::default().is_reserved(&prefix) {
                let first = prefix.trim_matches('/').split('/').next().unwrap_or_default();
                return Err(Error::invalid(format!(
                    "`/{first}/` is an address of the server itself, so nobody could read `{}` there",
                    path.display()
                ))
                .hint("write PLACE=FOLDER with another place"));
            }
            let still = is_unpacked_crate(&path);
            Ok(FolderRoot { path, prefix, notes_only: still, still })
        })
        .collect()
}

/// Returns true for a crate that cargo has unpacked: such a folder never changes, and most of its files are not notes.
fn is_unpacked_crate(path: &Path) -> bool {
    let parts: Vec<_> = path.components().map(|part| part.as_os_str()).collect();
    parts.windows(2).any(|pair| pair[0] == "registry" && pair[1] == "src")
}

/// Reports the folders in `/ready` and `/metrics`.
struct Folders(folder::Status);

impl Component for Folders {
    fn name(&self) -> &'static str {
        "folders"
    }

    fn report(&self) -> Report {
        let state = self.0.get();
        let figure = |name, kind, help, value: u64| Figure {
            name,
            kind,
            help,
            value: value as f64,
            for_admins: false,
        };
        // Figures that count private notes too are for admins only.
        let own =
            |name, kind, help, value: u64| Figure { for_admins: true, ..figure(name, kind, help, value) };
        Report {
            ok: state.failures.is_empty(),
            detail: json!({
                "settled": state.settled,
                "folders": state.roots,
                "failing": state.failures.len(),
            }),
            figures: vec![
                own("folder_files", "gauge", "Files of the vault's folders.", state.files),
                own("folder_bytes", "gauge", "Bytes of the vault's folders.", state.bytes),
                figure(
                    "folder_failing",
                    "gauge",
                    "Folders that cannot be read now.",
                    state.failures.len() as u64,
                ),
                own(
                    "folder_passed_over",
                    "gauge",
                    "Files that are too large or cannot be read.",
                    state.skipped.len() as u64,
                ),
                figure("folder_looks_total", "counter", "Scans of folders.", state.scans),
                Figure {
                    name: "folder_last_look_seconds",
                    kind: "gauge",
                    help: "Duration of the last scan.",
                    value: state.last_scan.as_secs_f64(),
                    for_admins: false,
                },
                own("folder_files_read_total", "counter", "Files whose content was read.", state.files_read),
                own("folder_rows_written_total", "counter", "Rows written or removed.", state.rows_written),
                own("folder_watched", "gauge", "Folders that the kernel watches for changes.", state.watched),
                figure("folder_polled", "gauge", "Root folders that are polled.", state.polled),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(given: &[&str]) -> Vec<(String, String)> {
        let given: Vec<String> = given.iter().map(|text| (*text).to_owned()).collect();
        let roots = roots(&given).unwrap();
        roots.into_iter().map(|root| (root.prefix, root.path.display().to_string())).collect()
    }

    #[test]
    fn one_folder_is_the_site_and_several_have_their_names() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(placed(&["/none/docs"]), [pair("", "/none/docs")]);
        assert_eq!(
            placed(&["/none/docs", "=/none/top", "a/b=/none/x"]),
            [pair("docs", "/none/docs"), pair("", "/none/top"), pair("a/b", "/none/x")]
        );
        let here = testkit::package().join("Cargo.toml");
        let here = here.to_str().unwrap();
        assert_eq!(placed(&[here, "/none/y"]), [pair("", here), pair("y", "/none/y")]);
    }

    /// A data directory named as a folder was served as an empty site, with only a warning in the log.
    #[test]
    fn a_database_named_as_a_folder_is_refused() {
        let dir = testkit::temp_dir("vault-database");
        std::fs::write(dir.path().join("LOCK"), "").unwrap();
        std::fs::create_dir(dir.path().join("log")).unwrap();
        let whole = dir.path().to_str().unwrap();
        for given in [vec![whole.to_owned()], vec![format!("data={whole}"), "/none/docs".to_owned()]] {
            let error = roots(&given).unwrap_err();
            assert!(error.to_string().contains("belongs to a database"), "{error}");
        }
    }

    /// Every page of `v1=notes` was a 404.
    #[test]
    fn a_place_that_belongs_to_the_server_is_refused() {
        for given in ["v1=/none/x", "_/a=/none/x", "/Health/=/none/x"] {
            let error = roots(&[given.to_owned()]).unwrap_err();
            assert!(error.to_string().contains("an address of the server itself"), "{error}");
        }
        assert!(roots(&["/none/v1".to_owned(), "/none/y".to_owned()]).is_err(), "its own name is its place");
        assert_eq!(placed(&["/none/v1"]), [(String::new(), "/none/v1".to_owned())], "alone it is the top");
    }

    #[test]
    fn a_folder_that_has_an_equals_sign_in_its_name_is_found() {
        let dir = testkit::temp_dir("vault");
        let folder = dir.path().join("year=2026");
        std::fs::create_dir(&folder).unwrap();
        let whole = folder.to_str().unwrap().to_owned();
        assert_eq!(placed(&[&whole]), [(String::new(), whole.clone())]);
        assert_eq!(placed(&[&format!("x={whole}")]), [("x".to_owned(), whole)]);
    }

    #[test]
    fn an_unpacked_crate_is_looked_at_once_and_for_its_notes() {
        let given =
            ["crates/x=/home/me/.cargo/registry/src/index/x-1.0.0".to_owned(), "/home/me/notes".to_owned()];
        let roots = roots(&given).unwrap();
        assert_eq!([roots[0].still, roots[0].notes_only], [true, true]);
        assert_eq!([roots[1].still, roots[1].notes_only], [false, false]);
    }
}
