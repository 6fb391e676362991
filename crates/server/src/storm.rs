//! Starts storms for the page. A storm is a process of its own, so that its load does not burden this one.
//!
//! The process writes one JSON object per line. The lines are kept in memory, bounded in number. The process ends by itself when
//! its standard input is closed: on request, and also when this server ends for whatever reason.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value as Json, json};
use types::{Error, Result};
use vfs::{Mutex, Rank};

/// Settings that are needed to start a storm.
#[derive(Clone, Debug)]
pub struct StormSettings {
    /// A program that has the command `storm`.
    pub program: PathBuf,
    /// The parent of the storm's directory. It is made when needed, and removed when it is empty.
    pub root: PathBuf,
}

/// The longest storm that may be requested, in seconds. It bounds the lines that are kept.
const SECONDS_MAX: u64 = 600;
/// Bytes after which a line of the storm's output is cut.
const LINE_BYTES_MAX: u64 = 4 << 20;

/// The parameters of a storm, from the body of the request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StormParameters {
    seconds: u64,
    quiet_seconds: u64,
    load: Load,
    scale: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Load {
    Name(String),
    Rate(f64),
}

impl Default for StormParameters {
    fn default() -> Self {
        StormParameters { seconds: 60, quiet_seconds: 60, load: Load::Name("full".into()), scale: 1.0 }
    }
}

impl StormParameters {
    fn check(&self) -> Result<()> {
        for (name, seconds) in [("seconds", self.seconds), ("quiet_seconds", self.quiet_seconds)] {
            if !(1..=SECONDS_MAX).contains(&seconds) {
                return Err(Error::invalid(format!("`{name}` is 1 to {SECONDS_MAX}, found {seconds}")));
            }
        }
        let known = match &self.load {
            Load::Name(name) => matches!(name.as_str(), "full" | "half"),
            Load::Rate(rate) => rate.is_finite() && *rate >= 1.0,
        };
        if !known {
            return Err(Error::invalid("`load` is \"full\", \"half\" or a number of events a second"));
        }
        if !(self.scale > 0.0 && self.scale <= 1.0) {
            return Err(Error::invalid(format!("`scale` is above 0 and at most 1, found {}", self.scale)));
        }
        Ok(())
    }

    fn load(&self) -> String {
        match &self.load {
            Load::Name(name) => name.clone(),
            Load::Rate(rate) => rate.to_string(),
        }
    }
}

/// The last storm of this server and the settings for the next.
pub struct Storm {
    settings: Option<StormSettings>,
    /// A lock that is held only to copy some values, so no caller waits for long.
    last: Arc<Mutex<LastStorm>>,
}

/// The state of the last storm and its output.
#[derive(Default)]
struct LastStorm {
    state: State,
    /// Standard input of the process. Closing it ends the storm.
    input: Option<ChildStdin>,
    wanted: Json,
    phase: Json,
    seconds: Vec<Json>,
    outcome: Json,
    error: Json,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    None,
    Running,
    Stopping,
    /// The storm ran to its end, whatever its results.
    Done,
    Failed,
    Stopped,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::None => "none",
            State::Running => "running",
            State::Stopping => "stopping",
            State::Done => "done",
            State::Failed => "failed",
            State::Stopped => "stopped",
        }
    }

    fn is_under_way(self) -> bool {
        matches!(self, State::Running | State::Stopping)
    }
}

impl Storm {
    pub fn new(settings: Option<StormSettings>) -> Storm {
        Storm { settings, last: Arc::new(Mutex::new(Rank::new(12, "server storm"), LastStorm::default())) }
    }

    /// Starts a storm. Fails with [`types::Kind::Conflict`] while one is running.
    pub fn start(&self, wanted: &StormParameters) -> Result<()> {
        wanted.check()?;
        let settings = self.settings.clone().ok_or_else(|| {
            Error::not_found("this server starts no storms").hint("`polynya storm` does, on the command line")
        })?;
        {
            let mut last = self.last.lock();
            if last.state.is_under_way() {
                return Err(Error::conflict("a storm is under way")
                    .hint("wait for its end, or end it with DELETE /v1/storm"));
            }
            let shown = json!({
                "seconds": wanted.seconds,
                "quiet_seconds": wanted.quiet_seconds,
                "load": wanted.load(),
                "scale": wanted.scale,
            });
            *last = LastStorm { state: State::Running, wanted: shown, ..LastStorm::default() };
        }
        let last = self.last.clone();
        let started = spawn(&settings, wanted).and_then(|(mut child, output)| {
            last.lock().input = child.stdin.take();
            let followed = last.clone();
            // The thread waits for the process, so it exists as long as the process does.
            std::thread::Builder::new()
                .name("pn-storm".into())
                .spawn(move || follow(child, output, &settings, &followed))
                .map(drop)
                .map_err(|error| Error::io("starting a thread", error))
        });
        if let Err(error) = &started {
            let mut last = last.lock();
            // If the process was started, closing its input ends it.
            (last.state, last.input) = (State::Failed, None);
            last.error = json!({ "message": error.message(), "hint": error.hint_text() });
        }
        started
    }

    /// Ends the running storm, which takes it a second or two.
    pub fn stop(&self) -> Result<()> {
        let mut last = self.last.lock();
        if !last.state.is_under_way() {
            return Err(Error::not_found("no storm is under way"));
        }
        (last.state, last.input) = (State::Stopping, None);
        Ok(())
    }

    /// Ends the running storm without waiting for it, because the server ends.
    pub fn abandon(&self) {
        self.last.lock().input = None;
    }

    /// Returns the state of the last storm, and its seconds from index `after` on.
    pub fn shown(&self, after: usize) -> Json {
        let last = self.last.lock();
        json!({
            "state": last.state.name(),
            "wanted": last.wanted,
            "phase": last.phase,
            "after": last.seconds.len(),
            "seconds": last.seconds.get(after..).unwrap_or_default(),
            "outcome": last.outcome,
            "error": last.error,
        })
    }
}

fn spawn(settings: &StormSettings, wanted: &StormParameters) -> Result<(Child, ChildStdout)> {
    let failed = |error| Error::io(format!("starting {}", settings.program.display()), error);
    fs::create_dir_all(&settings.root)
        .map_err(|error| Error::io(format!("making {}", settings.root.display()), error))?;
    let mut child = Command::new(&settings.program)
        .args(["storm", "--json", "--attached"])
        .arg("--root")
        .arg(&settings.root)
        .args(["--seconds", &wanted.seconds.to_string()])
        .args(["--quiet-seconds", &wanted.quiet_seconds.to_string()])
        .args(["--load", &wanted.load()])
        .args(["--scale", &wanted.scale.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let output = child.stdout.take().ok_or_else(|| Error::internal("a piped output is there"))?;
    Ok((child, output))
}

/// Reads the output of the process until it ends.
fn follow(mut child: Child, output: ChildStdout, settings: &StormSettings, last: &Mutex<LastStorm>) {
    let mut lines = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        // A process that was killed may leave half a line, which is ignored.
        if let Ok(message) = serde_json::from_slice::<Json>(&line) {
            last.lock().note(message);
        }
    }
    // The process must not be left writing to a pipe that is no longer read.
    drop(lines);
    let status = child.wait();
    // Fails if the directory is not empty: it belongs to another storm, or one was killed. The next start of the server removes
    // it.
    let _ = fs::remove_dir(&settings.root);
    let mut last = last.lock();
    last.input = None;
    last.state = match last.state {
        State::Stopping if last.outcome.is_null() => State::Stopped,
        _ if !last.outcome.is_null() => State::Done,
        _ => State::Failed,
    };
    if last.state == State::Stopped {
        last.error = Json::Null;
    }
    if last.state == State::Failed && last.error.is_null() {
        let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        last.error = json!({ "message": format!("the process of the storm ended early: {how}") });
    }
}

impl LastStorm {
    /// Processes one line of output.
    fn note(&mut self, message: Json) {
        match message["told"].as_str() {
            Some("phase") => {
                self.phase = json!({ "phase": message["phase"], "text": message["text"], "seconds": message["seconds"] })
            }
            Some("second") if self.seconds.len() < 2 * SECONDS_MAX as usize + 100 => {
                self.seconds.push(message)
            }
            Some("outcome") => {
                const SHOWN: [&str; 14] = [
                    "load",
                    "alone_events_per_s",
                    "kinds",
                    "background",
                    "events",
                    "reads",
                    "longest_read_ms",
                    "wrong_answers",
                    "refused_reads",
                    "verified",
                    "examples",
                    "claims",
                    "failures",
                    "machine",
                ];
                let outcome = &message["outcome"];
                let mut shown: serde_json::Map<String, Json> =
                    SHOWN.iter().map(|name| ((*name).to_owned(), outcome[*name].clone())).collect();
                shown.insert("last_line".into(), message["last_line"].clone());
                self.outcome = Json::Object(shown);
            }
            Some("error") => self.error = json!({ "message": message["message"], "hint": message["hint"] }),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use types::Kind;

    use super::*;

    /// Returns a program that writes the lines of a storm.
    fn storm(name: &str, script: &str) -> (testkit::TempDir, Storm) {
        use std::os::unix::fs::PermissionsExt;
        let dir = testkit::temp_dir(name);
        let program = dir.path().join("fake");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let settings = StormSettings { program, root: dir.path().join("storm") };
        (dir, Storm::new(Some(settings)))
    }

    fn until(storm: &Storm, state: &str) -> Json {
        let since = Instant::now();
        loop {
            let shown = storm.shown(0);
            if shown["state"] == state {
                return shown;
            }
            assert!(since.elapsed() < Duration::from_secs(60), "{shown}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_a_storm_says_is_kept_and_its_end_is_seen() {
        let _limit = testkit::limit(120);
        let (dir, storm) = storm(
            "storm-said",
            r#"echo '{"told":"phase","phase":"quiet","text":"readers alone","seconds":1}'
echo '{"told":"second","at_s":1}'
echo 'no JSON'
echo '{"told":"second","at_s":2}'
echo '{"told":"outcome","last_line":"all well","outcome":{"events":7,"quiet":{"large":true}}}'"#,
        );
        assert_eq!(storm.shown(0)["state"], "none");
        storm.start(&StormParameters::default()).unwrap();
        let shown = until(&storm, "done");
        assert_eq!(shown["phase"]["phase"], "quiet");
        assert_eq!(shown["seconds"].as_array().unwrap().len(), 2);
        assert_eq!(storm.shown(1)["seconds"][0]["at_s"], 2);
        assert_eq!(storm.shown(99)["seconds"], json!([]));
        assert_eq!(
            (&shown["outcome"]["last_line"], &shown["outcome"]["events"]),
            (&json!("all well"), &json!(7))
        );
        assert!(shown["outcome"].get("quiet").is_none(), "nobody draws that");
        assert!(!dir.path().join("storm").exists(), "nothing is left behind");
    }

    #[test]
    fn one_at_a_time_and_closing_its_input_ends_it() {
        let _limit = testkit::limit(120);
        let (_dir, storm) =
            storm("storm-one", "cat >/dev/null; echo '{\"told\":\"error\",\"message\":\"stopped\"}'; exit 1");
        assert_eq!(storm.stop().unwrap_err().kind(), Kind::NotFound);
        storm.start(&StormParameters::default()).unwrap();
        assert_eq!(storm.start(&StormParameters::default()).unwrap_err().kind(), Kind::Conflict);
        storm.stop().unwrap();
        let shown = until(&storm, "stopped");
        assert!(shown["error"].is_null(), "that was asked for: {shown}");
        storm.start(&StormParameters::default()).unwrap();
        storm.abandon();
        assert_eq!(until(&storm, "failed")["error"]["message"], "stopped");
    }

    #[test]
    fn a_storm_that_cannot_start_or_dies_says_so() {
        let _limit = testkit::limit(120);
        let (_dir, dying) = storm("storm-dies", "kill -9 $$");
        dying.start(&StormParameters::default()).unwrap();
        let shown = until(&dying, "failed");
        assert!(shown["error"]["message"].as_str().unwrap().contains("signal: 9"), "{shown}");
        let none = Storm::new(None);
        assert_eq!(none.start(&StormParameters::default()).unwrap_err().kind(), Kind::NotFound);
        let missing = StormSettings { program: "/does/not/exist".into(), root: _dir.path().join("x") };
        let missing = Storm::new(Some(missing));
        assert!(missing.start(&StormParameters::default()).is_err());
        assert_eq!(missing.shown(0)["state"], "failed");
    }

    #[test]
    fn only_what_makes_sense_may_be_asked_for() {
        for (text, right) in [
            ("{}", true),
            (r#"{"seconds":600,"load":"half"}"#, true),
            (r#"{"load":50000,"scale":0.1}"#, true),
            (r#"{"seconds":0}"#, false),
            (r#"{"quiet_seconds":601}"#, false),
            (r#"{"load":"--root=/"}"#, false),
            (r#"{"load":-1}"#, false),
            (r#"{"scale":2}"#, false),
            (r#"{"root":"/"}"#, false),
        ] {
            let checked = serde_json::from_str::<StormParameters>(text)
                .map(|wanted| wanted.check().is_ok())
                .unwrap_or(false);
            assert_eq!(checked, right, "{text}");
        }
    }
}
