use super::*;

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn a_combined_line_is_taken_apart() {
    let entry = parse(
        r#"203.0.113.9 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif?x=1 HTTP/1.0" 200 2326 "http://example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)""#,
    );
    assert_eq!(
        entry,
        Entry {
            time: Some(971_211_336_000_000),
            client: some("203.0.113.9"),
            user: some("frank"),
            method: some("GET"),
            path: some("/apache_pb.gif?x=1"),
            protocol: some("HTTP/1.0"),
            status: Some(200),
            bytes: Some(2326),
            referer: some("http://example.com/start.html"),
            agent: some("Mozilla/4.08 [en] (Win98; I ;Nav)"),
            ..Entry::default()
        }
    );
}

#[test]
fn a_common_line_has_no_referer_and_no_agent() {
    let entry = parse(r#"::1 - - [01/Jan/2026:00:00:00 +0000] "HEAD / HTTP/1.1" 304 -"#);
    assert_eq!(entry.client, some("::1"));
    assert_eq!((entry.status, entry.bytes), (Some(304), None));
    assert_eq!((entry.user, entry.referer, entry.agent, entry.line), (None, None, None, None));
    assert_eq!(entry.time, Some(1_767_225_600_000_000));
}

#[test]
fn quotes_inside_quotes_do_not_end_a_field() {
    let escaped = parse(
        r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET /a HTTP/1.1" 200 5 "-" "say \"hi\" \\ there""#,
    );
    assert_eq!(escaped.agent, some(r#"say "hi" \ there"#));
    let bare = parse(r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET /?q="x"&y HTTP/1.1" 200 5 "-" "a"b""#);
    assert_eq!(bare.path, some(r#"/?q="x"&y"#));
    assert_eq!(bare.agent, some(r#"a"b"#));
}

#[test]
fn a_malformed_request_is_kept_as_the_path() {
    let tls = parse(r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "\x16\x03\x01\x02" 400 166 "-" "-""#);
    assert_eq!((tls.method, tls.path, tls.status), (None, some(r"\x16\x03\x01\x02"), Some(400)));
    let nothing = parse(r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "-" 408 - "-" "-""#);
    assert_eq!((nothing.method, nothing.path, nothing.status), (None, None, Some(408)));
    let empty = parse(r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "" 400 0"#);
    assert_eq!((empty.method, empty.path, empty.bytes), (None, None, Some(0)));
}

#[test]
fn spaces_in_paths_and_users_are_kept() {
    let entry = parse(r#"1.2.3.4 - John Q Public [01/Jan/2026:00:00:00 +0000] "GET /a b c HTTP/1.1" 200 5"#);
    assert_eq!((entry.user, entry.path), (some("John Q Public"), some("/a b c")));
    let old = parse(r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET /old" 200 5"#);
    assert_eq!((old.path, old.protocol), (some("/old"), None));
}

#[test]
fn a_virtual_host_before_the_client_and_fields_after_the_agent_are_kept() {
    let entry = parse(
        r#"www.example.com:443 2001:db8::7 - - [01/Jan/2026:01:00:00 +0100] "POST /x HTTP/2.0" 201 17 "-" "curl/8" 0.003 "10.0.0.1""#,
    );
    assert_eq!((entry.host, entry.client), (some("www.example.com:443"), some("2001:db8::7")));
    assert_eq!(entry.time, Some(1_767_225_600_000_000), "an hour east of Greenwich");
    assert_eq!(entry.extra, some(r#"0.003 "10.0.0.1""#));
}

#[test]
fn a_line_that_cannot_be_split_is_kept_whole() {
    for broken in [
        "",
        "hello",
        r#"1.2.3.4 - - [99/Foo/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5"#,
        r#"1.2.3.4 - - [01/Jan/2026:25:00:00 +0000] "GET / HTTP/1.1" 200 5"#,
        r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000"#,
        r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1"#,
        r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" abc 5"#,
        r#"1.2.3.4 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200"#,
        r#"1.2.3.4 [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5"#,
        r#"1.2.3.4 - - [01/Jan/2026:00:00:00 ü+00] "GET / HTTP/1.1" 200 5"#,
        r#"[01/"#,
    ] {
        assert_eq!(parse(broken), Entry { line: some(broken), ..Entry::default() }, "{broken}");
    }
}

#[test]
fn every_cut_of_a_line_is_parsed_without_panic() {
    let line =
        r#"host:80 1.2.3.4 - ü [10/Oct/2000:13:55:36 -0700] "GET /é\"x HTTP/1.0" 200 23 "r" "a" extra"#;
    for (at, _) in line.char_indices() {
        parse(&line[..at]);
        parse(&line[at..]);
    }
}
