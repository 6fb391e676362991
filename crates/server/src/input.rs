//! Parses the query string and the body of a request strictly. Its errors name the fault without terms of serde or Rust.

use std::time::Duration;

use engine::name_hints;
use http::{HeaderMap, Method, Uri, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use types::{Error, Result, name};

use crate::body::RequestBody;
use crate::failure::Failure;
use crate::values;

/// Parses the query string. An unknown or repeated parameter is refused, because the client would not notice that it is ignored.
pub fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T> {
    axum::extract::Query::<T>::try_from_uri(uri).map(|query| query.0).map_err(|e| {
        let why = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
        let hint = "/openapi.json lists the parameters";
        let Some((parameter, why)) = why.split_once(": ") else {
            return Error::invalid(format!("the query string is invalid: {why}")).hint(hint);
        };
        let mut hint = hint.to_owned();
        let wanted = match why {
            _ if is_about_number(why) => "a whole number".to_owned(),
            "provided string was not `true` or `false`" => "true or false".to_owned(),
            _ => match unknown_word(why) {
                Some((word, known)) => {
                    let near = name_hints::similar_names(word, known.iter().copied());
                    hint = if near.is_empty() { hint } else { name_hints::did_you_mean(&near[..1]) };
                    name_hints::one_of(&known)
                }
                None => return Error::invalid(format!("the query string is invalid: {why}")).hint(hint),
            },
        };
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri);
        let pairs = pairs.map(|pairs| pairs.0).unwrap_or_default();
        let value = pairs.iter().find(|(name, _)| name == parameter).map_or("", |(_, value)| value);
        let value = name::printable(value);
        Error::invalid(format!("`{parameter}` is {wanted}, `{value}` was given")).hint(hint)
    })
}

/// Returns the rejected word and the accepted words of serde's message about an unknown enum variant; `None` for other messages.
fn unknown_word(why: &str) -> Option<(&str, Vec<&str>)> {
    // The rejected word may contain any text, also this separator; the accepted words do not, so the last separator is the
    // right one.
    let (word, known) = why.strip_prefix("unknown variant `")?.rsplit_once("`, expected ")?;
    Some((word, known.split('`').skip(1).step_by(2).collect()))
}

/// Returns true for the standard library's messages about a text that does not parse as a number of the expected size.
fn is_about_number(why: &str) -> bool {
    [
        "invalid digit found in string",
        "cannot parse integer from empty string",
        "number too large to fit in target type",
        "number too small to fit in target type",
    ]
    .contains(&why)
}

/// Refuses any query parameter on a route that reads none. It would be ignored, and its sender would not know.
pub fn refuse_query(uri: &Uri) -> Result<()> {
    match uri.query().unwrap_or_default() {
        "" => Ok(()),
        query => {
            let first = query.split(['&', '=']).find(|part| !part.is_empty()).unwrap_or(query);
            let first = name::printable(first);
            Err(Error::invalid(format!("there is no parameter `{first}` here: the path takes none"))
                .hint("/openapi.json lists the parameters"))
        }
    }
}

/// Refuses a request that the form of a page may have sent. A browser sends forms across sites without asking the server first,
/// so any page that contains somebody's HTML, such as a note, could act with the rights of the user who presses its button.
/// Programs (`curl -d`) name such media types too; the headers that only browsers add tell them apart.
pub fn refuse_form(method: &Method, headers: &HeaderMap) -> Result<(), Failure> {
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    let is_browser = headers.contains_key(header::ORIGIN)
        || headers.keys().any(|name| name.as_str().starts_with("sec-fetch-"));
    if reads || !is_browser {
        return Ok(());
    }
    for value in headers.get_all(header::CONTENT_TYPE) {
        let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
        let media = text.split([';', ',']).map(str::trim);
        if let Some(form) = media.into_iter().find(|media| FORM_MEDIA.contains(media)) {
            return Err(Failure::unsupported(
                format!("a browser sent this as `{form}`, the media type of a form"),
                "a page's script sends `Content-Type: application/json`",
            ));
        }
    }
    Ok(())
}

const FORM_MEDIA: [&str; 3] = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"];

/// Parses a body of JSON. Its values count against the shared memory for as long as `held` lives. `what` names the expected
/// content and `example` shows a valid body; both are for the error.
pub fn body<'a, T: Deserialize<'a>>(
    held: &'a mut RequestBody,
    what: &str,
    example: &str,
) -> Result<T, Failure> {
    values::admit(held)?;
    Ok(json(&held.bytes, what, example)?)
}

/// Parses JSON as [`body`] does, for a text whose values are bounded elsewhere.
pub fn json<'a, T: Deserialize<'a>>(bytes: &'a [u8], what: &str, example: &str) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|e| {
        Error::invalid(format!("the body is not a valid {what}: {}", plain_message(&e)))
            .hint(format!("send {example}"))
    })
}

/// Returns serde's message without names of Rust types.
pub fn plain_message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let (text, place) = match text.rfind(" at line ") {
        Some(at) => text.split_at(at),
        None => (text.as_str(), ""),
    };
    let typed = ["invalid type: ", "invalid value: "].iter().find_map(|begin| text.strip_prefix(begin));
    if let Some((found, wanted)) = typed.and_then(|rest| rest.rsplit_once(", expected ")) {
        let found = match found {
            "sequence" => "an array",
            "map" => "an object",
            other => other,
        };
        return format!("{} expected, {found} found{place}", plain_type(wanted));
    }
    if text.starts_with("invalid length ") {
        return format!("an object expected, an array found{place}");
    }
    if let Some((word, known)) = unknown_word(text) {
        return format!("{} expected, `{}` found{place}", name_hints::one_of(&known), name::printable(word));
    }
    format!("{}{place}", text.replace("EOF while parsing", "it ends inside"))
}

/// Returns serde's description of an expected type in plain words.
fn plain_type(wanted: &str) -> &str {
    match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "an array",
        "a map" => "an object",
        "a boolean" => "true or false",
        other if other.starts_with("struct ") => "an object",
        other => other,
    }
}

/// Parses `deadline_ms`, by one rule for all routes: 0 is refused. The component that enforces the deadline caps it at its own
/// maximum.
pub fn deadline(ms: Option<u64>) -> Result<Option<Duration>> {
    match ms {
        Some(0) => Err(Error::invalid("`deadline_ms` is 1 or more, 0 was given")
            .hint("leave it out for as long as it usually takes")),
        ms => Ok(ms.map(Duration::from_millis)),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        Insert,
        Upsert,
        InsertIfAbsent,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct SampleQuery {
        limit: Option<u64>,
        mode: Option<Mode>,
        create: Option<bool>,
        #[serde(default)]
        names: Vec<String>,
    }

    #[test]
    fn a_parameter_that_does_not_fit_is_shown_with_what_is_wanted() {
        for (given, said) in [
            ("limit=x", "`limit` is a whole number, `x` was given"),
            ("limit=-1", "`limit` is a whole number, `-1` was given"),
            ("limit=", "`limit` is a whole number, `` was given"),
            (
                "limit=99999999999999999999999",
                "`limit` is a whole number, `99999999999999999999999` was given",
            ),
            ("create=x", "`create` is true or false, `x` was given"),
            ("mode=upsrt", "`mode` is `insert`, `upsert` or `insert_if_absent`, `upsrt` was given"),
            ("mode=", "`mode` is `insert`, `upsert` or `insert_if_absent`, `` was given"),
        ] {
            let uri: Uri = format!("/v1/tables/t/rows?{given}").parse().unwrap();
            assert_eq!(query::<SampleQuery>(&uri).unwrap_err().message(), said);
        }
        for (given, hint) in
            [("upsrt", "did you mean `upsert`?"), ("x", "/openapi.json lists the parameters")]
        {
            let uri: Uri = format!("/v1/tables/t/rows?mode={given}").parse().unwrap();
            assert_eq!(query::<SampleQuery>(&uri).unwrap_err().hint_text(), Some(hint));
        }
        let uri: Uri = "/v1/tables?wait=1".parse().unwrap();
        assert!(query::<SampleQuery>(&uri).unwrap_err().message().contains("unknown field `wait`"));
        assert_eq!(
            refuse_query(&uri).unwrap_err().message(),
            "there is no parameter `wait` here: the path takes none"
        );
        for none in ["/v1/tables", "/v1/tables?"] {
            refuse_query(&none.parse().unwrap()).unwrap();
        }
    }

    #[test]
    fn a_body_that_does_not_fit_is_told_without_names_of_types() {
        for (given, said) in [
            (r#"{"limit":"x"}"#, "a whole number from 0 on expected, string \"x\" found at line 1 column 12"),
            (r#"{"limit":-1}"#, "a whole number from 0 on expected, integer `-1` found at line 1 column 11"),
            (
                r#"{"mode":"x"}"#,
                "`insert`, `upsert` or `insert_if_absent` expected, `x` found at line 1 column 11",
            ),
            (r#"{"names":1}"#, "an array expected, integer `1` found at line 1 column 10"),
            (r#"{"create":1}"#, "true or false expected, integer `1` found at line 1 column 11"),
            ("1", "an object expected, integer `1` found at line 1 column 1"),
            (r#"{"limit":1"#, "it ends inside an object at line 1 column 10"),
        ] {
            let message =
                json::<SampleQuery>(given.as_bytes(), "search", "{}").unwrap_err().message().to_owned();
            assert_eq!(message, format!("the body is not a valid search: {said}"), "{given}");
        }
    }
}
