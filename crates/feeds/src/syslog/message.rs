//! Parses the content of a syslog message.

use chrono::{DateTime, Datelike, Utc};
use serde_json::{Map, Value as Json, json};
use syslog_loose::{
    IncompleteDate, Message, ProcId, SyslogFacility, SyslogSeverity, Variant, decompose_pri,
    parse_message_with_year_tz,
};
use types::{Micros, TIMES};

/// A parsed message, as a row. Fields that the message lacks are `None`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ParsedMessage {
    /// The time in UTC; a time without a zone is taken as UTC. A time beyond the years 1 to 9999 is left out.
    pub time: Option<Micros>,
    pub facility: Option<&'static str>,
    /// The severity from 0, an emergency, to 7, a debug message.
    pub severity: Option<i32>,
    pub level: Option<&'static str>,
    pub host: Option<String>,
    pub app: Option<String>,
    pub process: Option<String>,
    pub kind: Option<String>,
    /// The text of the message. If neither form matches, this is the whole input.
    pub message: String,
    /// Structured data, as JSON by element ids and parameter names.
    pub data: Option<String>,
    /// True if the message had one of the two forms.
    pub is_understood: bool,
}

impl ParsedMessage {
    /// Makes the listener's own message about `count` dropped datagrams.
    pub fn of_dropped(count: u64, now: Micros) -> ParsedMessage {
        ParsedMessage {
            time: Some(now),
            facility: Some(SyslogFacility::LOG_SYSLOG.as_str()),
            severity: Some(SyslogSeverity::SEV_WARNING as i32),
            level: Some(SyslogSeverity::SEV_WARNING.as_str()),
            app: Some("polynya".to_owned()),
            message: format!("{count} messages over UDP were lost: they came faster than they were read"),
            data: Some(json!({ "polynya": { "dropped": count } }).to_string()),
            is_understood: true,
            ..ParsedMessage::default()
        }
    }

    /// Makes a row of a message in neither form. Many devices, for example Cisco's, still begin with a priority, which
    /// is kept.
    fn of_neither(text: &str) -> ParsedMessage {
        let Some((facility, severity, rest)) = priority(text) else {
            return ParsedMessage { message: text.to_owned(), ..ParsedMessage::default() };
        };
        ParsedMessage {
            facility: Some(facility.as_str()),
            severity: Some(severity as i32),
            level: Some(severity.as_str()),
            message: rest.to_owned(),
            ..ParsedMessage::default()
        }
    }

    /// Parses a message. `now` supplies the year of a time without one.
    pub fn parse(bytes: &[u8], now: Micros) -> ParsedMessage {
        let text = String::from_utf8_lossy(bytes);
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let year = move |date: IncompleteDate| year_of(date, now);
        let parsed: Message<&str> = parse_message_with_year_tz(text, year, Some(Utc), Variant::Either);
        let (Some(facility), Some(severity)) = (parsed.facility, parsed.severity) else {
            return ParsedMessage::of_neither(text);
        };
        let owned = |part: Option<&str>| part.map(str::to_owned);
        let process = parsed.procid.map(|process| match process {
            ProcId::PID(number) => number.to_string(),
            ProcId::Name(name) => name.to_owned(),
        });
        let mut data = Map::new();
        for element in &parsed.structured_data {
            let of_element = data.entry(element.id).or_insert_with(|| Json::Object(Map::new()));
            for (name, value) in element.params() {
                let Json::Object(params) = &mut *of_element else { continue };
                match params.get_mut(*name) {
                    // A parameter may occur several times.
                    Some(Json::Array(values)) => values.push(value.into()),
                    Some(first) => *first = Json::Array(vec![first.take(), value.into()]),
                    None => drop(params.insert((*name).to_owned(), value.into())),
                }
            }
        }
        ParsedMessage {
            time: parsed.timestamp.map(|time| time.timestamp_micros()).filter(|time| TIMES.contains(time)),
            facility: Some(facility.as_str()),
            severity: Some(severity as i32),
            level: Some(severity.as_str()),
            host: owned(parsed.hostname),
            app: owned(parsed.appname),
            process,
            kind: owned(parsed.msgid),
            message: parsed.msg.strip_prefix('\u{feff}').unwrap_or(parsed.msg).to_owned(),
            data: (!data.is_empty()).then(|| Json::Object(data).to_string()),
            is_understood: true,
        }
    }
}

/// Parses a priority such as `<189>` in front of a text, and returns the text after it.
fn priority(text: &str) -> Option<(SyslogFacility, SyslogSeverity, &str)> {
    let (digits, rest) = text.strip_prefix('<')?.split_once('>')?;
    let is_number = (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let (facility, severity) = decompose_pri(digits.parse().ok().filter(|_| is_number)?);
    Some((facility?, severity?, rest))
}

/// Returns the year in which a date without a year is nearest to `now`: a message of December may arrive in January.
fn year_of((month, ..): IncompleteDate, now: Micros) -> i32 {
    let now = DateTime::<Utc>::from_timestamp_micros(now).unwrap_or_default();
    match (now.month(), month) {
        (1, 12) => now.year() - 1,
        (12, 1) => now.year() + 1,
        _ => now.year(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-01-02T03:04:05Z.
    const NOW: Micros = 1_767_323_045_000_000;

    fn parsed(text: &str) -> ParsedMessage {
        ParsedMessage::parse(text.as_bytes(), NOW)
    }

    #[test]
    fn the_new_form_is_understood_with_its_data() {
        let found = parsed(concat!(
            r#"<165>1 2026-01-02T03:04:05.123456+01:00 host.example app 17 ID47 [a@1 k="v" q="a\"b\]" k="w"][b@2] "#,
            "\u{feff}An event\nof two lines"
        ));
        let expected = ParsedMessage {
            time: Some(NOW - 3_600_000_000 + 123_456),
            facility: Some("local4"),
            severity: Some(5),
            level: Some("notice"),
            host: Some("host.example".into()),
            app: Some("app".into()),
            process: Some("17".into()),
            kind: Some("ID47".into()),
            message: "An event\nof two lines".into(),
            data: Some(r#"{"a@1":{"k":["v","w"],"q":"a\"b]"},"b@2":{}}"#.into()),
            is_understood: true,
        };
        assert_eq!(found, expected);
        let bare = parsed("<14>1 - - - - - - text");
        assert_eq!((bare.time, bare.host, bare.message.as_str()), (None, None, "text"));
    }

    #[test]
    fn the_old_form_gets_its_year_from_the_clock() {
        let found = parsed("<34>Jan  2 03:04:05 mymachine su[42]: 'su root' failed");
        assert_eq!(found.time, Some(NOW));
        assert_eq!((found.facility, found.level, found.severity), (Some("auth"), Some("crit"), Some(2)));
        assert_eq!((found.host.as_deref(), found.app.as_deref()), (Some("mymachine"), Some("su")));
        assert_eq!((found.process.as_deref(), found.message.as_str()), (Some("42"), "'su root' failed"));
        let december = parsed("<34>Dec 31 23:59:59 m su: late");
        assert_eq!(december.time, Some(1_767_225_599_000_000), "2025-12-31T23:59:59Z");
    }

    /// A row with such a time was kept, and as no table takes it, nothing was committed any more.
    #[test]
    fn a_time_that_no_table_takes_is_none() {
        for time in ["0000-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59.999999-12:00"]
        {
            let found = parsed(&format!("<13>1 {time} host app - - - x"));
            assert_eq!((found.time, found.host.as_deref()), (None, Some("host")), "{time}");
            assert_eq!(found.message, "x");
        }
        assert_eq!(parsed("<13>1 9999-12-31T23:59:59.999999Z h a - - - x").time, Some(*TIMES.end()));
    }

    /// Cisco routers send such messages; their priority was lost with the rest.
    #[test]
    fn a_priority_is_kept_whatever_stands_behind_it() {
        for (text, facility, level) in [
            ("<189>123: *Mar  1 18:46:11: %SYS-5-CONFIG_I: Configured from console", "local7", "notice"),
            ("<187>45: router1: Mar  1 18:46:11.123 UTC: %LINK-3-UPDOWN: Interface Gi0/1", "local7", "err"),
            ("<0>", "kern", "emerg"),
            ("<191>{\"json\": 1}", "local7", "debug"),
        ] {
            let found = parsed(text);
            assert_eq!((found.facility, found.level), (Some(facility), Some(level)), "{text}: {found:?}");
            let rest = text.split_once('>').unwrap().1;
            assert!(rest.ends_with(&found.message), "{text}: {found:?}");
        }
        for text in ["<192>x", "<1234>x", "<+13>x", "<13 >x", "<13x"] {
            assert_eq!((parsed(text).severity, parsed(text).message.as_str()), (None, text));
        }
    }

    #[test]
    fn what_is_neither_is_kept_whole() {
        for text in ["no priority", "<999>1 - - - - - - x", "<>", "{\"json\": 1}"] {
            let found = parsed(text);
            assert!(!found.is_understood, "{text}: {found:?}");
            assert_eq!((found.message.as_str(), found.severity), (text, None));
        }
        assert_eq!(ParsedMessage::parse(b"bad \xff utf8", NOW).message, "bad \u{fffd} utf8");
    }
}
