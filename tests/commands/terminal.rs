//! What reaches a terminal: no control characters of files and peers, no value of 100 kB. A pipe
//! that nobody reads delays no run.

use crate::command;

use std::{
    fs,
    io::Read,
    process::{Output, Stdio},
};

use command::{SMALL, folder, gradvine, program, until};

/// What a command writes on both streams, as text.
fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat()
}

/// Characters that a terminal acts upon.
const HIDDEN: [char; 4] = ['\u{1b}', '\u{202e}', '\u{9b}', '\r'];

#[test]
fn control_characters_of_files_are_printed_as_escapes() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let mut table = "x\u{1b}[2J,y,kind\u{202e}\n".to_string();
    for row in 0..40 {
        table += &format!("{row},{},cl\u{9b}ass{}\n", row % 7, row % 2);
    }
    fs::write(path("rows.csv"), table).unwrap();
    let out = path("run");
    let set = [
        format!("data.source={}", path("rows.csv")),
        "model.kind=softmax".into(),
        "topology.file=path:2".into(),
        "run.rounds=5".into(),
    ];
    let sets = set.iter().flat_map(|set| ["--set", set]);
    gradvine().arg("simulate").args(sets).args(["-q", "--out", &out]).assert().success();
    for args in [
        &["data", "describe", &path("rows.csv")][..],
        &["data", "describe", &path("rows.csv"), "--json"],
        &["evaluate", &out, &path("rows.csv")],
        &["evaluate", &out, &path("rows.csv"), "--json"],
        &["data", "describe", &path("no\u{1b}[31msuch.csv")],
        &["simulate", "--rounds", "x\u{1b}[2J"],
        &["simulate", "--set", "run.ro\u{202e}unds=1"],
    ] {
        let text = said(&program().args(args).output().unwrap());
        assert!(!text.contains(HIDDEN), "{args:?}: {text:?}");
        // The parser of arguments leaves them out.
        assert!(text.contains("\\u") || args.contains(&"--rounds"), "{args:?}: {text}");
    }
    // A foreign file in the place of a model, whose header is an error of the reader.
    let header = "{\"\u{1b}[2Jw\":{\"dtype\":\"\u{1b}[31m\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    fs::write(path("foreign.safetensors"), bytes).unwrap();
    let foreign = ["evaluate", &path("foreign.safetensors"), &path("rows.csv")];
    let text = said(&program().args(foreign).output().unwrap());
    assert!(!text.contains(HIDDEN) && text.contains("error: "), "{text:?}");
}

#[test]
fn a_long_value_is_not_repeated_whole() {
    let folder = folder();
    let path = folder.path().join("long.toml");
    let long = "x".repeat(100_000);
    for (text, shown) in [
        (format!("[run]\nrounds = \"{long}\"\n"), "expected a whole number"),
        (format!("[run]\n{long} = 1\n"), "unknown field"),
        (format!("[topology]\nfile = \"{long}\"\n"), "topology"),
        (format!("topology.file = 'ring:3'\n[rule]\nkind = \"{long}\"\n"), "rule.kind"),
        (format!("topology.file = 'ring:3'\n[data]\nsource = \"{long}\"\n"), "data.source"),
        (format!("[{long}]\n"), "there is no such section"),
    ] {
        fs::write(&path, text).unwrap();
        let output = program().arg("simulate").arg(&path).output().unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.len() < 4_100 && text.contains(shown), "{} bytes: {text}", text.len());
    }
    let argument = ["simulate", "--rounds", &long];
    assert!(said(&program().args(argument).output().unwrap()).len() < 4_100);
}

#[test]
fn a_log_that_nobody_reads_delays_no_run() {
    let folder = folder();
    let out = folder.path().join("run");
    let mut run = program();
    run.arg("train").args(SMALL).args(["--rounds", "40", "--no-baseline", "--out"]).arg(&out);
    run.env("RUST_LOG", "trace").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = run.spawn().unwrap();
    // The pipe takes 64 KiB.
    let mut ended = None;
    until("the end of a run", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().code(), Some(0));
    assert!(out.join("summary.json").is_file());
    let mut text = Vec::new();
    child.stderr.take().unwrap().read_to_end(&mut text).unwrap();
    assert!(text.len() > 30_000, "the log was larger than a pipe: {}", text.len());
}

/// What a command writes to a terminal of so many columns, with all control characters.
#[cfg(target_os = "linux")]
fn on_terminal(columns: u16, args: &[&str]) -> String {
    use rustix::{
        fs::{Mode, OFlags},
        pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
        termios::{Winsize, tcsetwinsize},
    };
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, size).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let [out, errors] = [(); 2].map(|()| rustix::fs::open(&name, flags, Mode::empty()).unwrap());
    let mut run = program();
    run.args(args).env("TERM", "xterm").stdin(Stdio::null()).stdout(out).stderr(errors);
    let mut child = run.spawn().unwrap();
    // The program has its own ends: when it closes them, nothing more can be read.
    drop(run);
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    let mut terminal = fs::File::from(terminal);
    while let Ok(count @ 1..) = terminal.read(&mut piece) {
        bytes.extend(&piece[..count]);
    }
    assert!(child.wait().unwrap().success(), "{}", String::from_utf8_lossy(&bytes));
    String::from_utf8(bytes).unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn lines_of_progress_and_tables_fit_the_terminal() {
    let folder = folder();
    for columns in [40, 60, 80, 120] {
        let out = folder.path().join(columns.to_string());
        let every = ["--set", "run.evaluate_every=1", "--rounds", "100"];
        let args = [&["simulate", "--out", out.to_str().unwrap()][..], &every].concat();
        let text = on_terminal(columns, &args);
        let width = usize::from(columns);
        for line in text.split("\u{1b}[?7l").skip(1) {
            let line = line.split('\u{1b}').next().unwrap();
            assert!(line.starts_with("  round ") && line.len() < width, "{columns}: {line}");
        }
        let mut screen = avt::Terminal::with_scrollback(width, 24, None).unwrap();
        screen.feed(&text);
        let lines = screen.primary_screen().text();
        assert!(!lines.iter().any(|line| line.starts_with("  round ")), "{lines:#?}");
        let head = lines.iter().position(|line| line.starts_with("  node ")).unwrap();
        let table = &lines[head..head + 9];
        assert!(table.iter().all(|line| line.len() <= width), "{lines:#?}");
        assert!(table[8].starts_with("  7 "), "no line is broken: {lines:#?}");
        let next = lines[head + 9].starts_with("  not shown: classes (rows)");
        assert_eq!(next, columns < 80, "{lines:#?}");
    }
}
