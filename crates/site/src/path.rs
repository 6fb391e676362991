//! Paths of a vault, the addresses of their pages, and the kinds of files that a site can have.
//!
//! The address of a page depends only on its path (and on which note is the index of its folder). So it never changes
//! because another note was added or removed. No two notes have the same address.

use crate::text::{encode_path, fold};

/// The longest path that can be published, in bytes. A request for a longer path is not looked up.
pub(crate) const PATH_BYTES_MAX: usize = 1024;
/// The largest number of parts of a path: its folders and the file.
pub const DEPTH_MAX: usize = 32;

/// First-level addresses of the site's own pages. A note that would have one of these addresses keeps its ending `.md`.
pub(crate) const OWN: [&str; 6] = ["tags", "all-notes", "feed.xml", "sitemap.xml", "robots.txt", "404"];

/// Tells whether a path can be in a vault: relative, with `/` between its parts, no hidden part, and no part that leads
/// upwards.
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

/// Tells whether a link might name a note with this path. Unlike [`is_valid`], it accepts paths that cannot be in a
/// vault, such as hidden and very deep ones.
pub fn is_withholdable(path: &str) -> bool {
    const BYTES_MAX: usize = 4096;
    const PARTS_MAX: usize = 256;
    let parts = path.split('/');
    is_note(path)
        && path.len() <= BYTES_MAX
        && parts.clone().count() <= PARTS_MAX
        && parts.clone().all(|part| !matches!(part, "" | "." | ".."))
}

/// Tells whether a file is a note. Upper case is accepted in the ending, since some systems write it so.
pub fn is_note(path: &str) -> bool {
    stem(path).len() < path.len()
}

/// Tells whether a site can have files of this kind beside notes.
pub fn is_file(path: &str) -> bool {
    content_type(path).is_some()
}

/// Splits a path into folder and file. The folder of a top-level file is empty.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Returns a path without the ending `.md`.
pub(crate) fn stem(path: &str) -> &str {
    const ENDING: &str = ".md";
    match path.len().checked_sub(ENDING.len()).and_then(|at| path.split_at_checked(at)) {
        Some((stem, ending)) if ending.eq_ignore_ascii_case(ENDING) => stem,
        _ => path,
    }
}

/// Returns the rank of a note as the index of its folder, by its file name without ending. The lowest rank is the
/// index. Returns `None` for names that cannot be an index.
pub(crate) fn index_rank(stem: &str) -> Option<u8> {
    match () {
        () if stem.eq_ignore_ascii_case("index") => Some(0),
        () if stem.eq_ignore_ascii_case("readme") => Some(1),
        () => None,
    }
}

/// Joins a relative path to a folder. Returns `None` if the result leaves the vault.
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

/// Returns the address of a note that is not the index of its folder.
pub(crate) fn note_url(path: &str, reserved: &dyn Fn(&str) -> bool) -> String {
    let stem = stem(path);
    // Without its ending, `a.png.md` would have the address of `a.png`, and `b.md.md` that of `b.md` if that keeps its
    // ending. `c.MD` may exist beside `c.md`.
    let has_ending = content_type(stem).is_some() || is_note(stem) || !path.ends_with(".md");
    let kept = if has_ending || reserved(stem) { path } else { stem };
    format!("/{}", encode_path(kept))
}

/// Returns the address of a folder: of its index note, or of the list of its notes.
pub(crate) fn folder_url(folder: &str) -> String {
    if folder.is_empty() { "/".to_owned() } else { format!("/{}/", encode_path(folder)) }
}

pub(crate) fn tag_url(tag: &str) -> String {
    format!("/tags/{}", encode_path(tag))
}

/// Folds an address for requests that match no address exactly.
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

/// Returns the content type and the media kind of a file that a note may show or link to, or `None` if a site cannot
/// have such files. HTML and scripts are excluded, since they would run with the rights of the site.
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
