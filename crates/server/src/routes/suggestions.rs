//! Suggestions ("did you mean") for mistyped paths and methods.

use http::Method;

use super::ROUTES;

/// Returns the path that a mistyped path probably means: that of a route whose fixed segments are similar, with the request's own
/// values in the other segments.
pub fn path(path: &str) -> Option<String> {
    let given_segments: Vec<&str> = path.split('/').collect();
    let mut best: Option<(usize, String)> = None;
    for route in ROUTES.iter().filter(|route| route.path != "/{page}") {
        let expected: Vec<&str> = route.path.split('/').collect();
        if expected.len() != given_segments.len() {
            continue;
        }
        let mut slips = 0;
        let mut segments = Vec::with_capacity(given_segments.len());
        for (expected, given) in expected.iter().zip(&given_segments) {
            if expected.starts_with('{') {
                segments.push(types::name::printable(given));
            } else if expected == given {
                segments.push((*given).to_owned());
            } else if engine::name_hints::similar_names(given, [*expected].into_iter()).is_empty() {
                break;
            } else {
                slips += 1;
                segments.push((*expected).to_owned());
            }
        }
        let fits = segments.len() == expected.len() && slips > 0;
        if fits && best.as_ref().is_none_or(|(least, _)| slips < *least) {
            best = Some((slips, segments.join("/")));
        }
    }
    best.map(|(_, path)| path)
}

/// Returns the methods of a route's path, in the order of the list of routes.
pub fn methods(path: &str) -> Vec<&'static Method> {
    ROUTES.iter().filter(|route| route.path == path).map(|route| &route.method).collect()
}
