//! The published site as seen by browsers and proxies.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Response, TestServer};
use engine::{ApiKey, Mode, Op, Transaction};
use polynya_server as server;
use site::{Materializer, Note, Options, Row, TABLE};
use types::{Principal, Scope, TableSet};

struct Site(TestServer);

impl Site {
    fn start(name: &str) -> Site {
        let running = TestServer::with_options(name, |options| options.site = Some(TABLE.to_owned()));
        Site(running)
    }

    fn with(name: &str, files: &[(&str, &str)]) -> Site {
        let site = Site::start(name);
        site.put(files);
        let options = Options { search: Some("/".into()), ..Options::default() };
        let materializer = Materializer::new(options, Arc::default()).unwrap();
        site.0.engine.register(Arc::new(materializer)).unwrap();
        site.wait(|site| site.get("/").status == 200 && site.is_whole());
        site
    }

    fn put(&self, files: &[(&str, &str)]) {
        let rule = Options::default().rule().unwrap();
        let rows: Vec<Row> = files
            .iter()
            .map(|(path, text)| {
                let note = path.ends_with(".md").then(|| Note::parse(path, text.as_bytes()));
                Row {
                    path: (*path).to_owned(),
                    published: note.as_ref().is_some_and(|note| rule.is_published(note)),
                    words: note.map(|note| note.public_words()),
                    content: text.as_bytes().to_vec().into(),
                    modified: Some(1_700_000_000_000_000),
                }
            })
            .collect();
        let create = Op::CreateTable { def: site::definition(TABLE).unwrap(), if_absent: true };
        let insert =
            Op::Insert { table: TABLE.into(), batch: site::batch(&rows).unwrap(), mode: Mode::Upsert };
        self.0.engine.commit(&Principal::local(), Transaction::new(vec![create])).unwrap();
        self.0.engine.commit(&Principal::local(), Transaction::new(vec![insert])).unwrap();
    }

    fn get(&self, path: &str) -> Response {
        self.ask("GET", path, &[])
    }

    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
        self.0.client().ask(method, path, headers, b"")
    }

    fn wait(&self, is: impl Fn(&Site) -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !is(self) {
            assert!(Instant::now() < end, "{}", self.get("/").text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns true if the site has reached the newest row of the vault.
    fn is_whole(&self) -> bool {
        let root = self.0.engine.root();
        let table = root.tables().find(|table| table.def().is_vault()).unwrap();
        let position = root.derived("site", table.def().id);
        position.is_some_and(|position| position.checkpoint.row.next() >= table.next_row())
    }

    fn key(&self, name: &str, scope: Scope) -> String {
        let secret = format!("pk_{name}");
        let hash = server::hash_of(&secret);
        let key = ApiKey { name: name.into(), hash, scope, tables: TableSet::All, created: 0 };
        self.0.engine.commit(&Principal::local(), Transaction::new(vec![Op::PutKey(key)])).unwrap();
        format!("Bearer {secret}")
    }
}

const OPEN: &str = "---\npublish: true\n---\n# Open\nA line that comes again. [[secret]] ![x](p.png)\n";

fn files() -> Vec<(&'static str, String)> {
    vec![
        ("open.md", OPEN.replace("again.", &"again and again. ".repeat(200))),
        ("f/index.md", "---\npublish: true\n---\n# Folder\n".into()),
        ("secret.md", "# Secret\nnobody reads this".into()),
        ("p.png", "not really a picture, but long enough to cut".into()),
    ]
}

fn site(name: &str) -> Site {
    let files = files();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    Site::with(name, &files)
}

fn unpacked(answer: &Response) -> String {
    let mut text = String::new();
    let mut reader = flate2::read::GzDecoder::new(&answer.body[..]);
    std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
    text
}

#[test]
fn without_a_vault_the_root_leads_to_the_page_and_says_how_to_have_one() {
    let _limit = testkit::limit(60);
    let site = Site::start("pages-none");
    let root = site.get("/");
    assert_eq!((root.status, root.header("location")), (307, Some("/_/")));
    assert!(root.text().contains("polynya publish"), "{}", root.text());
    assert_eq!(site.get("/open").status, 404);
    // The vault exists and its pages are not rendered yet.
    site.put(&[("open.md", OPEN)]);
    let early = site.get("/open");
    assert_eq!((early.status, early.header("retry-after")), (503, Some("1")), "{}", early.text());
    assert_eq!(site.get("/health").status, 200);
}

#[test]
fn a_page_is_sent_packed_or_plain_tagged_and_not_twice() {
    let _limit = testkit::limit(60);
    let site = site("pages-forms");
    let plain = site.get("/open");
    assert_eq!(plain.status, 200);
    assert_eq!(plain.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(plain.header("content-encoding"), None);
    for (name, value) in [
        ("cache-control", "no-cache"),
        ("vary", "accept-encoding"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "strict-origin-when-cross-origin"),
        ("last-modified", "Tue, 14 Nov 2023 22:13:20 GMT"),
    ] {
        assert_eq!(plain.header(name), Some(value), "{name}");
    }
    assert!(plain.header("content-security-policy").unwrap().contains("default-src 'none'"));
    let packed = site.ask("GET", "/open", &[("Accept-Encoding", "br, gzip;q=0.8")]);
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert_eq!(unpacked(&packed), plain.text());
    assert!(packed.body.len() < plain.body.len());
    let (tag, packed_tag) = (plain.header("etag").unwrap(), packed.header("etag").unwrap());
    assert_ne!(tag, packed_tag);
    let known = site.ask("GET", "/open", &[("If-None-Match", tag)]);
    assert_eq!((known.status, known.body.len(), known.header("etag")), (304, 0, Some(tag)));
    assert_eq!(known.header("cache-control"), Some("no-cache"));
    let other = site.ask("GET", "/open", &[("If-None-Match", packed_tag)]);
    assert_eq!(other.status, 200, "the tag of another form is not this one's");
    let head = site.ask("HEAD", "/open", &[]);
    let length = plain.body.len().to_string();
    assert_eq!(
        (head.status, head.body.len(), head.header("content-length")),
        (200, 0, Some(length.as_str()))
    );
    let mut client = site.0.client();
    for _ in 0..3 {
        let again = client.ask("HEAD", "/open", &[], b"");
        assert_eq!((again.status, again.header("etag")), (200, Some(tag)), "the connection stays usable");
        assert_eq!(client.ask("GET", "/open", &[("If-None-Match", tag)], b"").status, 304);
        assert_eq!(client.ask("GET", "/open", &[], b"").body, plain.body);
    }
}

#[test]
fn other_spellings_redirect_to_the_page_and_a_missing_page_is_a_page_too() {
    let _limit = testkit::limit(60);
    let site = site("pages-moved");
    for (asked, address) in [
        ("/open/", "/open"),
        ("/OPEN", "/open"),
        ("/open.md?a=%22&b", "/open?a=%22&b"),
        ("/f", "/f/"),
        ("//open", "/open"),
    ] {
        let answer = site.get(asked);
        assert_eq!((answer.status, answer.header("location")), (301, Some(address)), "{asked}");
    }
    for path in ["/none", "/open%00", "/../secret", "/%2e%2e/secret", "/secret", "/secret.md", "/%ff"] {
        let answer = site.get(path);
        assert_eq!((answer.status, answer.header("etag")), (404, None), "{path}");
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
        assert!(!answer.text().to_lowercase().contains("nobody reads"), "{path}");
    }
    let posted = site.ask("POST", "/open", &[]);
    assert_eq!((posted.status, posted.header("allow")), (405, Some("GET, HEAD")));
    assert!(site.get("/v1/none").text().starts_with('{'), "what belongs to routes stays theirs");
}

#[test]
fn a_file_is_sent_in_parts_and_only_if_a_published_note_has_it() {
    let _limit = testkit::limit(60);
    let site = site("pages-files");
    let whole = site.get("/p.png");
    assert_eq!((whole.status, whole.header("accept-ranges")), (200, Some("bytes")));
    assert_eq!(whole.header("content-type"), Some("image/png"));
    let part = site.ask("GET", "/p.png", &[("Range", "bytes=4-9")]);
    assert_eq!((part.status, part.text().as_str()), (206, "really"));
    let size = whole.body.len();
    assert_eq!(part.header("content-range"), Some(format!("bytes 4-9/{size}").as_str()));
    let beyond = site.ask("GET", "/p.png", &[("Range", "bytes=9999-")]);
    assert_eq!(
        (beyond.status, beyond.header("content-range")),
        (416, Some(format!("bytes */{size}").as_str()))
    );
    let packed = site.ask("GET", "/open", &[("Range", "bytes=0-9"), ("Accept-Encoding", "gzip")]);
    assert_eq!(packed.status, 200, "parts of pages are not sent");
    site.put(&[("open.md", "---\npublish: false\n---\n")]);
    site.wait(|site| site.get("/open").status == 404);
    assert_eq!(site.get("/p.png").status, 404, "no published note shows it any more");
}

#[test]
fn pages_need_no_key_and_private_notes_stay_private_whoever_asks() {
    let _limit = testkit::limit(60);
    let site = site("pages-keys");
    let forwarded = site.ask("GET", "/open", &[("X-Forwarded-For", "1.2.3.4")]);
    assert_eq!(forwarded.status, 403, "before the first key only this machine is answered");
    let reader = site.key("reader", Scope::Read);
    let writer = site.key("writer", Scope::Write);
    let admin = site.key("admin", Scope::Admin);
    assert_eq!(
        site.ask("GET", "/open", &[("X-Forwarded-For", "1.2.3.4"), ("Host", "example.org")]).status,
        200
    );
    assert_eq!(site.get("/v1/tables").status, 401);
    for (key, status) in [(&reader, 404), (&writer, 404), (&admin, 200)] {
        let asked = |method: &str, path: &str, body: &str| {
            site.0.client().ask(method, path, &[("Authorization", key)], body.as_bytes())
        };
        assert_eq!(asked("GET", "/v1/tables/vault", "").status, status);
        assert_eq!(asked("GET", "/v1/tables/vault/rows", "").status, status);
        assert_eq!(asked("GET", "/v1/tables/vault/rows/secret.md", "").status, status);
        let tables = asked("GET", "/v1/tables", "").text();
        assert_eq!(tables.contains("vault"), status == 200, "{tables}");
        for sql in ["SELECT * FROM vault", "SELECT count(*) FROM main.vault", "SHOW TABLES", "DESCRIBE vault"]
        {
            let answer = asked("POST", "/v1/sql", &format!(r#"{{"sql":"{sql}"}}"#)).text();
            let tells =
                answer.contains("secret.md") || answer.contains("\"vault\"") || answer.contains("[[4]]");
            assert!(status == 200 || !tells, "{sql}: {answer}");
        }
        if status == 404 {
            let row = r#"{"path":"x.md","published":true,"size":1,"source":"x"}"#;
            // The reader may not write. The writer's attempt used to be retried for half a minute, since it tried to create the
            // table.
            assert_eq!(asked("POST", "/v1/tables/vault/rows", row).status, 403);
            assert!(
                asked("PUT", "/v1/tables/vault", r#"{"columns":[{"name":"x","type":"int64"}]}"#).status
                    >= 400
            );
            assert!(asked("DELETE", "/v1/tables/vault/rows/secret.md", "").status >= 400);
            assert!(asked("DELETE", "/v1/tables/vault", "").status >= 400);
        }
    }
    assert!(site.0.engine.root().table(TABLE).unwrap().rows() == 4);
    let live = site.get("/open");
    assert!(!live.text().contains("ecret"), "{}", live.text());
}

#[test]
fn the_site_finds_published_notes_and_reveals_no_others() {
    let _limit = testkit::limit(60);
    let site = Site::with(
        "pages-search",
        &[
            ("ice.md", "---\npublish: true\n---\n# Sea ice\nA `<b>floe</b>` drifts. See [[Submarine]].\n"),
            ("more/floe.md", "---\npublish: true\n---\nAnother floe\n"),
            ("Submarine.md", "# Submarine\nUnder the floe lies a torpedo\n"),
        ],
    );
    let home = site.get("/").text();
    assert!(home.contains("<form role=\"search\" action=\"/\">"), "{home}");
    let found = site.get("/?q=floe");
    assert_eq!((found.status, found.header("cache-control")), (200, Some("no-store")));
    let text = found.text();
    assert!(text.contains("<p>2 notes</p>") && text.contains("href=\"/ice\""), "{text}");
    assert!(text.contains("&lt;b&gt;<mark>floe</mark>&lt;/b&gt;"), "{text}");
    let packed = site.ask("GET", "/?q=floe", &[("Accept-Encoding", "gzip")]);
    assert_eq!(unpacked(&packed), text);
    // Searches for the text, the title and the path of a private note, also by each column name.
    for words in
        ["torpedo", "Submarine", "torp*", "path:Submarine", "source:torpedo", "text:torpedo", "-sea", "lies"]
    {
        let answer = site.get(&format!("/?q={words}"));
        let text = answer.text().replace(&format!("Search: {words}"), "");
        assert!(matches!(answer.status, 200 | 400), "{words}: {}", answer.status);
        let tells = ["Submarine", "torpedo"].into_iter().filter(|word| !words.contains(word));
        for word in tells.chain(["Found", "href=\"/Submarine"]) {
            assert!(words == "-sea" || !text.contains(word), "{words} tells {word}: {text}");
        }
        assert!(!text.contains("Under the") && !text.contains("/Submarine"), "{words}: {text}");
    }
    // The score of a public note does not depend on how often private notes contain the word.
    let reader = site.key("reader", Scope::Read);
    let asked = |path: &str| site.ask("GET", path, &[("Authorization", &reader)]).text();
    let before = asked("/v1/tables/vault/search?q=floe");
    assert!(before.contains("\"total\":2") && !before.contains("ubmarine"), "{before}");
    assert!(asked("/v1/search?q=torpedo").contains("\"total\":0"));
    let score =
        |text: &str| text.split("\"score\":").nth(1).map(|rest| rest.split(',').next().unwrap().to_owned());
    site.put(&[("Submarine.md", "# Submarine\nfloe floe floe floe\n"), ("z.md", "floe, also private")]);
    let after = asked("/v1/tables/vault/search?q=floe");
    assert!(score(&before).is_some());
    assert_eq!(score(&before), score(&after));
    // API keys exist by now, and readers of the site still need none.
    assert_eq!(site.get("/?q=floe").status, 200);
    assert_eq!(site.get("/?q=").status, 200);
    let script = site.get("/?q=%3Cscript%3Ealert(1)%3C/script%3E").text();
    assert!(!script.contains("<script"), "{script}");
    let broken = site.get("/?q=%22open");
    assert!(matches!(broken.status, 200 | 400), "{}", broken.status);
    assert!(broken.header("content-type").unwrap().starts_with("text/html"));
}

struct FolderPart;

impl server::Component for FolderPart {
    fn name(&self) -> &'static str {
        "folders"
    }

    fn report(&self) -> server::Report {
        let figure = |name, for_admins| server::Figure {
            name,
            kind: "gauge",
            help: "So many.",
            value: 41.0,
            for_admins,
        };
        let figures = vec![figure("folder_files", true), figure("folder_failing", false)];
        server::Report { ok: true, detail: serde_json::json!({ "settled": true }), figures }
    }
}

/// `/ready`, which needs no key, and `/metrics` told every reader the number of files, and so the number of private ones.
#[test]
fn only_admins_see_how_much_is_private() {
    let _limit = testkit::limit(60);
    let running =
        TestServer::with_options("pages-figures", |options| options.components = vec![Arc::new(FolderPart)]);
    let site = Site(running);
    let (reader, admin) = (site.key("reader", Scope::Read), site.key("admin", Scope::Admin));
    for (key, sees) in [(&reader, false), (&admin, true)] {
        let metrics = site.ask("GET", "/metrics", &[("Authorization", key)]).text();
        assert!(metrics.contains("polynya_folder_failing 41"), "{metrics}");
        assert_eq!(metrics.contains("polynya_folder_files 41"), sees, "{metrics}");
    }
}
