//! Suggestions ("did you mean") for mistyped paths and methods.

use http::Method;

use super::ROUTES;

/// Returns the path that a mistyped path probably means: that of a route whose fixed segments are similar, with the request's own
/// values in the other segments.
pub fn path(asked: &str) -> Option<String> {
    let parts: Vec<&str> = asked.split('/').collect();
    let mut best: Option<(usize, String)> = None;
    for route in ROUTES.iter().filter(|route| route.path != "/{page}") {
        let wanted: Vec<&str> = route.path.split('/').collect();
        if wanted.len() != parts.len() {
            continue;
        }
        let mut slips = 0;
        let mut meant = Vec::with_capacity(parts.len());
        for (wanted, part) in wanted.iter().zip(&parts) {
            if wanted.starts_with('{') {
                meant.push(types::name::printable(part));
            } else if wanted == part {
                meant.push((*part).to_owned());
            } else if engine::near::near(part, [*wanted].into_iter()).is_empty() {
                break;
            } else {
                slips += 1;
                meant.push((*wanted).to_owned());
            }
        }
        let fits = meant.len() == wanted.len() && slips > 0;
        if fits && best.as_ref().is_none_or(|(least, _)| slips < *least) {
            best = Some((slips, meant.join("/")));
        }
    }
    best.map(|(_, path)| path)
}

/// Returns the methods of a route's path, in the order of the list of routes.
pub fn methods(path: &str) -> Vec<&'static Method> {
    ROUTES.iter().filter(|route| route.path == path).map(|route| &route.method).collect()
}
