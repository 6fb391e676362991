//! The feed with its thread, a database and a site.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use engine::{Engine, Transaction};
use site::{Materializer, Options as SiteOptions, ParsedNotes, Site, TABLE};
use types::{Principal, Scope};

use super::super::tree::FileChange;
use super::super::{Feed, FolderRoot, Options, State, reconcile, rows};
use super::root;
use crate::folder::Limits;

struct TestFeed {
    engine: Engine,
    feed: Option<Feed>,
    options: SiteOptions,
    watch: bool,
    parsed: Arc<ParsedNotes>,
}

impl TestFeed {
    fn new(data: &Path, roots: Vec<FolderRoot>, publish: &[&str], watch: bool) -> TestFeed {
        let engine = Engine::open(vfs::Env::real(), data, engine::Options::default()).unwrap();
        let publish = publish.iter().map(|pattern| (*pattern).to_owned()).collect();
        let options = SiteOptions { publish, ..SiteOptions::default() };
        let parsed = Arc::new(ParsedNotes::default());
        let mut run = TestFeed { engine, feed: None, options, watch, parsed };
        run.start(roots);
        let materializer = Materializer::new(run.options.clone(), run.parsed.clone()).unwrap();
        run.engine.register(Arc::new(materializer)).unwrap();
        run
    }

    fn start(&mut self, roots: Vec<FolderRoot>) {
        self.feed = None;
        let options = Options {
            table: TABLE.to_owned(),
            roots,
            rule: self.options.rule().unwrap(),
            parsed: self.parsed.clone(),
            limits: Limits::default(),
            watch: self.watch,
        };
        self.feed = Some(Feed::start(self.engine.clone(), options).unwrap());
    }

    fn state(&self) -> State {
        self.feed.as_ref().unwrap().status().get()
    }

    fn site(&self) -> Option<Arc<Site>> {
        let root = self.engine.root();
        let table = root.table(TABLE)?;
        root.derived(site::NAME, table.def().id)?.published()
    }

    fn page(&self, url: &str) -> Option<String> {
        let site = self.site()?;
        Some(String::from_utf8(site.vault.page(url)?.plain.bytes.to_vec()).unwrap())
    }

    fn rows(&self) -> u64 {
        self.engine.root().table(TABLE).unwrap().rows()
    }

    /// Waits until the condition holds, and returns the duration.
    fn wait(&self, what: &str, mut is: impl FnMut(&TestFeed) -> bool) -> Duration {
        let started = Instant::now();
        while !is(self) {
            assert!(started.elapsed() < Duration::from_secs(30), "{what}: {:?}", self.state());
            std::thread::sleep(Duration::from_millis(2));
        }
        started.elapsed()
    }
}

#[test]
fn a_changed_file_is_a_page_within_a_second() {
    let _limit = testkit::limit(120);
    for watch in [true, false] {
        let dir = testkit::temp_dir("feeds");
        let vault = dir.path().join("vault");
        fs::create_dir_all(vault.join("x")).unwrap();
        for i in 0..200 {
            fs::write(vault.join(format!("x/n{i}.md")), format!("# Note {i}\n[[n{}]]", i + 1)).unwrap();
        }
        let run = TestFeed::new(&dir.path().join("data"), vec![root(&vault, "")], &["**"], watch);
        run.wait("the first pages", |run| run.state().settled && run.page("/x/n7").is_some());
        let mut times = Vec::new();
        for round in 0..8 {
            let word = format!("word{round}");
            match round % 4 {
                // The file is written in place, over a new file, in a new folder, and by a rename.
                0 => fs::write(vault.join("x/n7.md"), &word).unwrap(),
                1 => fs::write(vault.join("x/n7.md.tmp"), &word)
                    .and_then(|()| fs::rename(vault.join("x/n7.md.tmp"), vault.join("x/n7.md")))
                    .unwrap(),
                2 => {
                    fs::create_dir_all(vault.join(format!("new{round}/deep"))).unwrap();
                    fs::write(vault.join(format!("new{round}/deep/a.md")), &word).unwrap();
                }
                _ => {
                    let from = vault.join(format!("new{}/deep/a.md", round - 1));
                    fs::write(&from, &word).unwrap();
                    fs::rename(from, vault.join(format!("moved{round}.md"))).unwrap();
                }
            }
            let url = match round % 4 {
                0 | 1 => "/x/n7".to_owned(),
                2 => format!("/new{round}/deep/a"),
                _ => format!("/moved{round}"),
            };
            let took = run.wait("a change", |run| run.page(&url).is_some_and(|page| page.contains(&word)));
            times.push(took);
        }
        fs::remove_file(vault.join("x/n7.md")).unwrap();
        times.push(run.wait("a removal", |run| run.page("/x/n7").is_none()));
        times.sort_unstable();
        println!("watch {watch}: {times:?}");
        // Other processes on the machine may delay single rounds by a second, but not most of them.
        assert!(times[times.len() / 2] < Duration::from_secs(1), "watch {watch}: {times:?}");
        assert_eq!((run.state().watched > 0, run.state().polled), (watch, u64::from(!watch)));
    }
}

#[test]
fn a_restart_writes_nothing_and_removes_what_is_gone() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("feeds");
    let vault = dir.path().join("vault");
    fs::create_dir_all(&vault).unwrap();
    for i in 0..50 {
        fs::write(vault.join(format!("n{i}.md")), format!("# Note {i}")).unwrap();
    }
    fs::write(vault.join("p.png"), [1, 2, 3]).unwrap();
    let data = dir.path().join("data");
    let run = TestFeed::new(&data, vec![root(&vault, "")], &["**"], true);
    run.wait("rows", |run| run.state().settled && run.rows() == 51);
    let next_row = run.engine.root().table(TABLE).unwrap().next_row();
    drop(run);
    let mut run = TestFeed::new(&data, vec![root(&vault, "")], &["**"], true);
    run.wait("a look", |run| run.state().settled && run.state().scans > 0);
    assert_eq!(run.state().rows_written, 0, "{:?}", run.state());
    assert_eq!(run.engine.root().table(TABLE).unwrap().next_row(), next_row, "nothing was written");
    run.feed = None;
    fs::remove_file(vault.join("n0.md")).unwrap();
    fs::write(vault.join("n1.md"), "other").unwrap();
    run.start(vec![root(&vault, "")]);
    run.wait("what changed meanwhile", |run| run.state().settled && run.rows() == 50);
    assert_eq!(run.state().rows_written, 2);
    // The folder is empty, or missing, when the server starts.
    run.feed = None;
    fs::rename(&vault, dir.path().join("away")).unwrap();
    run.start(vec![root(&vault, "")]);
    run.wait("a failure", |run| !run.state().failures.is_empty());
    fs::create_dir(&vault).unwrap();
    run.wait("another failure", |run| run.state().failures.iter().any(|said| said.contains("is empty")));
    assert_eq!((run.rows(), run.state().settled), (50, false));
    // Under another prefix every row has another path, and the old ones are removed.
    run.feed = None;
    fs::remove_dir(&vault).unwrap();
    fs::rename(dir.path().join("away"), &vault).unwrap();
    run.start(vec![root(&vault, "below")]);
    run.wait("other rows", |run| run.state().settled && run.state().rows_written == 100);
    assert_eq!(run.rows(), 50);
    run.wait("other pages", |run| run.page("/below/n2").is_some() && run.page("/n2").is_none());
}

#[test]
fn what_is_no_longer_to_be_published_is_taken_back_before_anybody_asks() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("feeds");
    let vault = dir.path().join("vault");
    fs::create_dir_all(&vault).unwrap();
    fs::write(vault.join("a.md"), "---\npublish: true\n---\nopen").unwrap();
    fs::write(vault.join("b.md"), "by the pattern").unwrap();
    let data = dir.path().join("data");
    let run = TestFeed::new(&data, vec![root(&vault, "")], &["**"], true);
    run.wait("pages", |run| run.page("/a").is_some() && run.page("/b").is_some());
    let reader = Principal { name: "reader".into(), scope: Scope::Read, tables: types::TableSet::All };
    let published = |run: &TestFeed| {
        let view = run.engine.view(&reader).unwrap();
        assert!(view.table("vault").is_err() && view.tables().is_empty(), "its rows are for admins");
        let table = view.searchable("vault").unwrap();
        let filter = view.row_filter(&table).unwrap();
        let names = |id| table.def().schema.column(id).map(|c| c.name.clone()).unwrap();
        let shown: Vec<String> = filter.columns.iter().map(|id| names(*id)).collect();
        assert_eq!(shown, ["path", "title", "text", "modified", "size"]);
        filter.rows(&table).unwrap().len()
    };
    assert_eq!(published(&run), 2);
    drop(run);
    let engine = Engine::open(vfs::Env::real(), &data, engine::Options::default()).unwrap();
    reconcile(&engine, TABLE, &SiteOptions::default().rule().unwrap()).unwrap();
    engine.close().unwrap();
    drop(engine);
    let run = TestFeed::new(&data, vec![root(&vault, "")], &[], true);
    assert_eq!(published(&run), 1, "before the first look");
    run.wait("the site", |run| run.page("/a").is_some());
    assert!(run.page("/b").is_none());
}

/// A public note that links to a private one was written first; if there was much to write, it had a commit of its
/// own. Until the next commit its page took the private note for a missing one, and showed its name.
#[test]
fn what_is_private_is_known_before_what_links_to_it_and_for_as_long() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("feeds");
    let engine =
        Engine::open(vfs::Env::real(), &dir.path().join("data"), engine::Options::default()).unwrap();
    rows::ensure(&engine, TABLE).unwrap();
    let rule = SiteOptions::default().rule().unwrap();
    let put = |path: &str, text: &str| FileChange::Put {
        path: path.to_owned(),
        content: text.to_owned().into(),
        modified: None,
    };
    let write = |mut changes: Vec<FileChange>| {
        rows::write(&engine, TABLE, &rule, &ParsedNotes::default(), &mut changes, &AtomicBool::new(false))
            .unwrap();
        assert!(changes.is_empty());
    };
    let open = "---\npublish: true\n---\n[[the plan]] ![[p.png]]";
    write(vec![put("a.md", open), put("p.png", "p"), put("z/the plan.md", "nobody reads this")]);
    // Returns the commit that wrote a path, and its position among the rows.
    let written = |path: &str| {
        let table = engine.root().table(TABLE).cloned().unwrap();
        let key =
            types::key::encode_values(&[types::DataType::String], &[types::Value::String(path.to_owned())]);
        let row = table.find(&key.unwrap()).unwrap().unwrap();
        table.lsn_of(row).unwrap().unwrap()
    };
    assert!(written("a.md") > written("z/the plan.md") && written("a.md") > written("p.png"));

    // The link is removed together with the note: the page changes before the note is gone.
    write(vec![
        FileChange::Remove { path: "z/the plan.md".into() },
        put("a.md", "---\npublish: true\n---\nnothing"),
    ]);
    assert!(written("a.md") < engine.root().lsn());
    assert_eq!(engine.root().table(TABLE).unwrap().rows(), 2);
}

#[test]
fn nobody_but_an_admin_writes_to_a_vault_drops_it_or_makes_one() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("feeds");
    fs::write(dir.path().join("a.md"), "a").unwrap();
    let run = TestFeed::new(&dir.path().join("data"), vec![root(dir.path().join("a.md"), "")], &[], true);
    run.wait("a row", |run| run.rows() == 1);
    let writer = Principal { name: "writer".into(), scope: Scope::Write, tables: types::TableSet::All };
    let refused = |op: engine::Op| run.engine.commit(&writer, Transaction::new(vec![op])).is_err();
    let row =
        site::Row { path: "b.md".into(), words: None, content: "x".into(), published: true, modified: None };
    let batch = site::batch(&[row]).unwrap();
    assert!(refused(engine::Op::Insert { table: "vault".into(), batch, mode: engine::Mode::Upsert }));
    assert!(refused(engine::Op::DropTable { table: "vault".into(), if_exists: false }));
    assert!(refused(engine::Op::CreateTable {
        def: site::definition("main.mine").unwrap(),
        if_absent: true
    }));
    let drop_it = engine::Op::DropTable { table: "vault".into(), if_exists: true };
    run.engine.commit(&writer, Transaction::new(vec![drop_it])).unwrap();
    assert_eq!(run.rows(), 1, "it does not exist for the writer, so nothing is dropped");
    assert!(refused(engine::Op::CreateTable {
        def: types::TableDef::new(types::TableId(0), TABLE),
        if_absent: true
    }));
}

#[test]
fn a_table_of_the_same_name_that_is_no_vault_stays_as_it_is() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("feeds");
    let engine =
        Engine::open(vfs::Env::real(), &dir.path().join("data"), engine::Options::default()).unwrap();
    let mut def = types::TableDef::new(types::TableId(0), TABLE);
    def.add_column("x", &types::DataType::Int64, true, None).unwrap();
    let create = engine::Op::CreateTable { def, if_absent: false };
    engine.commit(&Principal::local(), Transaction::new(vec![create])).unwrap();
    let options = Options {
        table: TABLE.to_owned(),
        roots: vec![root(dir.path(), "")],
        rule: SiteOptions::default().rule().unwrap(),
        parsed: Arc::default(),
        limits: Limits::default(),
        watch: true,
    };
    let error = Feed::start(engine, options).err().expect("refused");
    assert_eq!(error.kind(), types::Kind::Schema, "{error}");
}

/// The new table got only later changes. A private note was missing from it, and a link to that note showed its
/// name.
#[test]
fn a_table_that_is_dropped_is_made_again_with_everything_in_it() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("feeds");
    let vault = dir.path().join("vault");
    fs::create_dir_all(&vault).unwrap();
    fs::write(vault.join("open.md"), "# Open\n[[secret plan]]").unwrap();
    fs::write(vault.join("other.md"), "other").unwrap();
    fs::write(vault.join("secret plan.md"), "---\npublish: false\n---\nnobody reads this").unwrap();
    let run = TestFeed::new(&dir.path().join("data"), vec![root(&vault, "")], &["**"], true);
    run.wait("pages", |run| run.state().settled && run.page("/open").is_some());
    for round in 0..3 {
        let drop_it = engine::Op::DropTable { table: TABLE.into(), if_exists: false };
        run.engine.commit(&Principal::local(), Transaction::new(vec![drop_it])).unwrap();
        // Writes the note that links to the private one, and the private one itself, which may be read a moment later.
        match round {
            0 => fs::write(vault.join("open.md"), "# Open again\n[[secret plan]]").unwrap(),
            1 => fs::write(vault.join("secret plan.md"), "---\npublish: false\n---\nstill nobody").unwrap(),
            _ => {}
        }
        run.wait("everything", |run| {
            let page = run.page("/open");
            let says = page.as_ref().is_some_and(|page| page.contains("secret plan"));
            assert!(!says, "round {round}: {page:?}");
            page.is_some() && run.page("/other").is_some() && run.state().settled
        });
        assert_eq!(run.rows(), 3);
        assert!(run.page("/secret%20plan").is_none());
    }
}

/// A link to a skipped note counted as a link to a missing note, and showed its name.
#[test]
fn a_note_that_is_passed_over_is_not_named_either() {
    let _limit = testkit::limit(120);
    let dir = testkit::temp_dir("feeds");
    let vault = dir.path().join("vault");
    for folder in ["secret", ".private", "out"] {
        fs::create_dir_all(vault.join(folder)).unwrap();
    }
    fs::write(vault.join("secret/BigMerger.md"), vec![b'x'; site::NOTE_BYTES_MAX + 1]).unwrap();
    fs::write(vault.join(".private/HiddenPlan.md"), "plan").unwrap();
    fs::write(dir.path().join("Abroad.md"), "abroad").unwrap();
    std::os::unix::fs::symlink(dir.path().join("Abroad.md"), vault.join("Abroad.md")).unwrap();
    fs::write(
        vault.join("open.md"),
        "[[secret/BigMerger]] [[BigMerger|the Bigmerger]] [[.private/HiddenPlan]] [[HiddenPlan]] [[Abroad]] [[none]]",
    )
    .unwrap();
    let data = dir.path().join("data");
    let hidden = |run: &TestFeed| {
        run.wait("a page", |run| run.state().settled && run.page("/open").is_some());
        let page = run.page("/open").unwrap();
        for name in ["erger", "HiddenPlan", "private", "secret", "Abroad"] {
            assert!(!page.contains(name), "{name}: {page}");
        }
        assert_eq!(
            (page.matches("class=\"withheld\"").count(), page.contains(">none<")),
            (5, true),
            "{page}"
        );
        assert_eq!(run.site().unwrap().vault.notes().count(), 1);
    };
    let run = TestFeed::new(&data, vec![root(&vault, "")], &["**"], true);
    hidden(&run);
    assert_eq!(run.rows(), 4);
    drop(run);
    let run = TestFeed::new(&data, vec![root(&vault, "")], &["**"], true);
    hidden(&run);
    assert_eq!(run.state().rows_written, 0, "{:?}", run.state());
    fs::write(vault.join("secret/BigMerger.md"), "small").unwrap();
    run.wait("its page", |run| run.page("/secret/BigMerger").is_some());
    run.wait("the link", |run| {
        run.page("/open").is_some_and(|page| page.contains("href=\"/secret/BigMerger\""))
    });
}

#[test]
fn a_feed_that_stops_takes_no_further_note_in() {
    let _limit = testkit::limit(60);
    let dir = testkit::temp_dir("feeds");
    let engine =
        Engine::open(vfs::Env::real(), &dir.path().join("data"), engine::Options::default()).unwrap();
    rows::ensure(&engine, TABLE).unwrap();
    let rule = SiteOptions::default().rule().unwrap();
    let mut changes =
        vec![FileChange::Put { path: "a.md".to_owned(), content: "a".to_owned().into(), modified: None }];
    let written =
        rows::write(&engine, TABLE, &rule, &ParsedNotes::default(), &mut changes, &AtomicBool::new(true));
    assert_eq!((written.unwrap_err().kind(), changes.len()), (types::Kind::Closed, 1));
    assert_eq!(engine.root().table(TABLE).unwrap().rows(), 0);
}
