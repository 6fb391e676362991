//! Paths of a vault, the addresses of their pages, and what kinds of files a site has.
//!
//! A page's address follows from its path alone (and from which note is its folder's index), so that it never changes
//! because another note came or went. No two notes have one address.

use crate::text::{encode_path, fold};

/// A path longer than this is not published, and no lookup of a longer one is tried.
pub(crate) const PATH_BYTES_MAX: usize = 1024;
/// Folders of a path, with the file.
pub const DEPTH_MAX: usize = 32;

/// Addresses of the site's own pages, on the first level. Notes that would have them keep `.md` in theirs.
pub(crate) const OWN: [&str; 6] = ["tags", "all-notes", "feed.xml", "sitemap.xml", "robots.txt", "404"];

/// Whether a path can be in a vault: relative, `/` between its parts, nothing hidden, nothing that leads upwards.
pub fn is_valid(path: &str) -> bool {
    let parts_valid = || {
        path.split('/').all(|part| {
            !part.is_empty()
                && !part.starts_with('.')
                && !part.contains(['\0', '\\'])
                && !part.chars().any(char::is_control)
        })
    };
    !path.is_empty() && path.len() <= PATH_BYTES_MAX && path.split('/').count() <= DEPTH_MAX && parts_valid()
}

/// Whether a link might name this note, whether or not it can be in a vault: hidden ones and too deep ones too.
pub fn is_withholdable(path: &str) -> bool {
    const BYTES_MAX: usize = 4096;
    const PARTS_MAX: usize = 256;
    let parts = path.split('/');
    is_note(path)
        && path.len() <= BYTES_MAX
        && parts.clone().count() <= PARTS_MAX
        && parts.clone().all(|part| !matches!(part, "" | "." | ".."))
}

/// Whether a file is a note. Some systems write endings in upper case.
pub fn is_note(path: &str) -> bool {
    stem(path).len() < path.len()
}

/// Whether a file is of a kind that a site may have beside notes.
pub fn is_file(path: &str) -> bool {
    content_type(path).is_some()
}

/// The folder, empty for the vault itself, and the file.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Without the ending of a note.
pub(crate) fn stem(path: &str) -> &str {
    const ENDING: &str = ".md";
    match path.len().checked_sub(ENDING.len()).and_then(|at| path.split_at_checked(at)) {
        Some((stem, ending)) if ending.eq_ignore_ascii_case(ENDING) => stem,
        _ => path,
    }
}

/// Which of a folder's notes is its index: the lowest. `None` for all others.
pub(crate) fn index_rank(stem: &str) -> Option<u8> {
    match () {
        () if stem.eq_ignore_ascii_case("index") => Some(0),
        () if stem.eq_ignore_ascii_case("readme") => Some(1),
        () => None,
    }
}

/// Joins a relative path to a folder. `None` if it leaves the vault.
pub(crate) fn join(folder: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The address of a note that is not its folder's index.
pub(crate) fn note_url(path: &str, reserved: &dyn Fn(&str) -> bool) -> String {
    let stem = stem(path);
    // `a.png.md` would stand where `a.png` does, and `b.md.md` where `b.md` does if that keeps its ending.
    // `c.MD` may be beside `c.md`.
    let has_ending = content_type(stem).is_some() || is_note(stem) || !path.ends_with(".md");
    let kept = if has_ending || reserved(stem) { path } else { stem };
    format!("/{}", encode_path(kept))
}

/// The address of a folder: of its index note, or of the list of what is in it.
pub(crate) fn folder_url(folder: &str) -> String {
    if folder.is_empty() { "/".to_owned() } else { format!("/{}/", encode_path(folder)) }
}

pub(crate) fn tag_url(tag: &str) -> String {
    format!("/tags/{}", encode_path(tag))
}

/// What addresses are compared by when nothing has the exact one.
pub(crate) fn folded_url(decoded: &str) -> String {
    let folded = fold(decoded.trim_matches('/'));
    folded.strip_suffix(".md").or(folded.strip_suffix(".html")).unwrap_or(&folded).to_owned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Media {
    Image,
    Audio,
    Video,
    Document,
}

/// The content type of a file that a note may show or link to; `None` if a site does not have such files. HTML and
/// scripts are not among them: they would run with the site's rights.
pub(crate) fn content_type(path: &str) -> Option<(&'static str, Media)> {
    let (_, ending) = path.rsplit_once('.')?;
    Some(match ending.to_ascii_lowercase().as_str() {
        "png" => ("image/png", Media::Image),
        "jpg" | "jpeg" => ("image/jpeg", Media::Image),
        "gif" => ("image/gif", Media::Image),
        "webp" => ("image/webp", Media::Image),
        "avif" => ("image/avif", Media::Image),
        "bmp" => ("image/bmp", Media::Image),
        "svg" => ("image/svg+xml", Media::Image),
        "ico" => ("image/x-icon", Media::Image),
        "mp3" => ("audio/mpeg", Media::Audio),
        "ogg" | "oga" | "opus" => ("audio/ogg", Media::Audio),
        "m4a" => ("audio/mp4", Media::Audio),
        "wav" => ("audio/wav", Media::Audio),
        "flac" => ("audio/flac", Media::Audio),
        "mp4" | "m4v" => ("video/mp4", Media::Video),
        "webm" => ("video/webm", Media::Video),
        "ogv" => ("video/ogg", Media::Video),
        "mov" => ("video/quicktime", Media::Video),
        "pdf" => ("application/pdf", Media::Document),
        "txt" | "log" => ("text/plain; charset=utf-8", Media::Document),
        "csv" => ("text/csv; charset=utf-8", Media::Document),
        "json" => ("application/json", Media::Document),
        "zip" => ("application/zip", Media::Document),
        "gz" => ("application/gzip", Media::Document),
        "epub" => ("application/epub+zip", Media::Document),
        "docx" => {
            ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", Media::Document)
        }
        "xlsx" => ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", Media::Document),
        "pptx" => {
            ("application/vnd.openxmlformats-officedocument.presentationml.presentation", Media::Document)
        }
        _ => return None,
    })
}
