//! The pictures of `gradvine report` are correct: curves go through the evaluations, bars are as
//! long as the bytes, and a browser, if there is one, paints them in light and dark, without
//! anything outside the page.

use crate::command;

use std::{
    collections::BTreeMap,
    env,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use command::{folder, gradvine, json as read_json, metrics};
use quick_xml::{
    Reader,
    events::{BytesStart, Event},
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Two runs and their page.
struct Shown {
    folder: TempDir,
    runs: [PathBuf; 2],
    /// Without its scripts, and with them.
    html: String,
    whole: String,
}

impl Shown {
    fn new() -> Shown {
        let folder = folder();
        let runs = ["four-bits", "dense"].map(|name| folder.path().join(name));
        let network = [
            "network.preset=4g",
            "network.compute=fixed",
            "network.compute_ms=20",
            "run.evaluate_every=10",
        ];
        let rules = [
            ["rule.kind=choco", "compressor.bits=4"],
            ["rule.kind=d-psgd", "compressor.kind=identity"],
        ];
        for (run, rule) in runs.iter().zip(rules) {
            gradvine()
                .args([
                    "simulate",
                    "-q",
                    "--no-baseline",
                    "--rounds",
                    "120",
                    "--topology",
                    "ring:5",
                    "--out",
                ])
                .arg(run)
                .args(network.iter().chain(&rule).flat_map(|set| ["--set", set]))
                .assert()
                .success();
        }
        let out = folder.path().join("report.html");
        let figures = folder.path().join("figures");
        let mut report = gradvine();
        report.arg("report").args(&runs).arg("--out").arg(&out).arg("--figures").arg(figures);
        report.assert().success();
        let whole = fs::read_to_string(&out).unwrap();
        // As a browser without scripts shows it: the still pictures.
        let mut html = whole.clone();
        while let Some(begin) = html.find("<script") {
            let end = begin + html[begin..].find("</script>").unwrap() + "</script>".len();
            html.replace_range(begin..end, "");
        }
        Shown { folder, runs, html, whole }
    }

    /// The SVG of a picture.
    fn picture(&self, id: &str) -> Picture {
        let file = self.folder.path().join(format!("figures/{id}.svg"));
        Picture::of(&fs::read_to_string(file).unwrap(), id)
    }

    /// The evaluations of a run: (x, y) of each round, of the mean over its nodes.
    fn evaluations(&self, run: usize, x: &str, y: &str) -> Vec<(f64, f64)> {
        let mut rounds: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
        for line in metrics(&self.runs[run]) {
            rounds.entry(line["round"].as_u64().unwrap()).or_default().push(line);
        }
        let mean = |lines: &Vec<Value>, key: &str| {
            lines.iter().map(|line| line[key].as_f64().unwrap()).sum::<f64>() / lines.len() as f64
        };
        rounds.values().map(|lines| (mean(lines, x), mean(lines, y))).collect()
    }
}

#[derive(Clone, Debug)]
struct Element {
    name: String,
    attributes: BTreeMap<String, String>,
}

impl Element {
    fn is(&self, name: &str, key: &str, value: &str) -> bool {
        self.name == name && self.attributes.get(key).is_some_and(|found| found == value)
    }

    fn number(&self, key: &str) -> f64 {
        self.attributes[key].parse().unwrap()
    }

    /// The points of a path of straight lines.
    fn points(&self) -> Vec<(f64, f64)> {
        let point = |text: &str| {
            let (x, y) = text.split_once(' ').unwrap();
            (x.parse().unwrap(), y.parse().unwrap())
        };
        self.attributes["d"].split(['M', 'L']).filter(|text| !text.is_empty()).map(point).collect()
    }
}

#[derive(Clone, Debug)]
struct Picture {
    elements: Vec<Element>,
}

impl Picture {
    fn of(svg: &str, id: &str) -> Picture {
        let mut reader = Reader::from_str(svg);
        let mut elements = Vec::new();
        let element = |start: &BytesStart| Element {
            name: start.name().as_ref().to_string(),
            attributes: (start.attributes().map(Result::unwrap))
                .map(|one| (one.key.as_ref().to_string(), one.value.into_owned()))
                .collect(),
        };
        loop {
            match reader.read_event().unwrap_or_else(|error| panic!("{id}: {error}")) {
                Event::Start(start) | Event::Empty(start) => elements.push(element(&start)),
                Event::Eof => break,
                _ => {}
            }
        }
        Picture { elements }
    }

    /// Paths that are lines, in the order of the runs.
    fn curves(&self) -> Vec<&Element> {
        let drawn = |element: &&Element| {
            element.is("path", "fill", "none") && element.attributes.contains_key("clip-path")
        };
        self.elements.iter().filter(drawn).collect()
    }

    /// Left, top, right, bottom of the plot.
    fn plot(&self) -> [f64; 4] {
        let at = self.elements.iter().position(|element| element.name == "clipPath").unwrap();
        let frame = &self.elements[at + 1];
        let [x, y, wide, high] = ["x", "y", "width", "height"].map(|key| frame.number(key));
        [x, y, x + wide, y + high]
    }

    /// Width and height of the sheet.
    fn size(&self) -> (f64, f64) {
        (self.elements[0].number("width"), self.elements[0].number("height"))
    }
}

const CURVES: [(&str, &str, &str); 10] = [
    ("loss-rounds", "round", "train_loss"),
    ("loss-bytes", "bytes_payload", "train_loss"),
    ("loss-time", "time_s", "train_loss"),
    ("test-loss-rounds", "round", "test_loss"),
    ("test-loss-bytes", "bytes_payload", "test_loss"),
    ("test-loss-time", "time_s", "test_loss"),
    ("accuracy-rounds", "round", "test_accuracy"),
    ("accuracy-bytes", "bytes_payload", "test_accuracy"),
    ("accuracy-time", "time_s", "test_accuracy"),
    ("consensus-rounds", "round", "consensus"),
];

/// Whether one scale maps every value to its pixel.
fn scales(pairs: &[(f64, f64)]) -> bool {
    let end = |least: bool| {
        let order = |a: &&(f64, f64), b: &&(f64, f64)| a.0.total_cmp(&b.0);
        *if least { pairs.iter().min_by(order) } else { pairs.iter().max_by(order) }.unwrap()
    };
    let ((v, p), (w, q)) = (end(true), end(false));
    pairs.iter().all(|(value, pixel)| (p + (value - v) / (w - v) * (q - p) - pixel).abs() < 0.2)
}

#[test]
fn curves_go_through_the_evaluations() {
    let shown = Shown::new();
    for (id, x, y) in CURVES {
        let picture = shown.picture(id);
        let ([left, top, right, bottom], curves) = (picture.plot(), picture.curves());
        assert_eq!(curves.len(), 2, "{id}");
        let (mut across, mut upwards) = (Vec::new(), Vec::new());
        for (run, curve) in curves.iter().enumerate() {
            let (values, points) = (shown.evaluations(run, x, y), curve.points());
            assert_eq!((points.len(), values.len()), (12, 12), "{id}");
            for &(px, py) in &points {
                assert!(
                    (left..=right).contains(&px) && (top..=bottom).contains(&py),
                    "{id}: {px} {py} is outside"
                );
            }
            assert!(points.windows(2).all(|pair| pair[0].0 < pair[1].0), "{id}: to the right");
            across.extend(values.iter().zip(&points).map(|(value, point)| (value.0, point.0)));
            upwards.extend(values.iter().zip(&points).map(|(value, point)| (value.1, point.1)));
        }
        assert_ne!(
            curves[0].attributes["d"], curves[1].attributes["d"],
            "{id}: two runs, two curves"
        );
        assert_ne!(
            curves[0].attributes["stroke"], curves[1].attributes["stroke"],
            "{id}: two runs, two colours"
        );
        let log = |pairs: &[(f64, f64)]| -> Vec<(f64, f64)> {
            pairs.iter().map(|(v, p)| (v.log10(), *p)).collect()
        };
        assert!(scales(&across) || scales(&log(&across)), "{id}: {across:?}");
        // The axis of accuracies is logarithmic in the error.
        let errors = |pairs: &[(f64, f64)]| -> Vec<(f64, f64)> {
            pairs.iter().map(|(v, p)| ((1.0 - v).log10(), *p)).collect()
        };
        let is_accuracy = y == "test_accuracy";
        let fits = scales(&if is_accuracy { errors(&upwards) } else { log(&upwards) });
        assert!(fits, "{id}: {upwards:?}");
        // Losses fall and accuracies rise: the picture is not upside down.
        let (first, last) = (upwards[0], upwards[11]);
        assert_eq!(first.0 < last.0, first.1 > last.1, "{id}");
        // A point drawn elsewhere fails the test.
        upwards[5].1 += 3.0;
        let moved = if is_accuracy { errors(&upwards) } else { log(&upwards) };
        assert!(!scales(&moved), "{id}: the check finds nothing");
    }
}

#[test]
fn bars_are_as_long_as_the_bytes() {
    let shown = Shown::new();
    for (run, path) in shown.runs.iter().enumerate() {
        let summary = read_json(&path.join("summary.json"));
        let picture = shown.picture(&format!("nodes-{}", run + 1));
        // The first is the ground; then three of the legend; then three a node.
        let bars: Vec<f64> = (picture.elements.iter())
            .filter(|element| element.name == "rect" && element.is("rect", "height", "8.5"))
            .map(|element| element.number("width"))
            .collect();
        let parts = summary["participation"].as_object().unwrap();
        let bytes: Vec<f64> = (parts.values())
            .flat_map(|part| {
                ["bytes_payload", "bytes_wire", "bytes_dense"]
                    .map(|key| part[key].as_f64().unwrap())
            })
            .collect();
        assert_eq!(bars.len(), 15);
        let (longest, most) =
            (bars.iter().copied().fold(0.0, f64::max), bytes.iter().copied().fold(0.0, f64::max));
        assert!(longest > 400.0);
        for (bar, bytes) in bars.iter().zip(&bytes) {
            assert!(
                (bar / longest - bytes / most).abs() < 1e-3,
                "run {run}: {bar} of {longest}, {bytes} of {most}"
            );
        }
    }
}

/// A headless browser, if there is one.
pub(crate) fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|path| path.is_file())
}

/// The address of a file for a browser.
pub(crate) fn address(file: &Path) -> String {
    format!("file://{}", file.display())
}

/// Runs the browser on a page; its standard output.
pub(crate) fn browse(
    browser: &Path,
    page: &str,
    width: u32,
    height: u32,
    more: &[impl AsRef<OsStr>],
) -> String {
    let profile = folder();
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--hide-scrollbars",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--force-color-profile=srgb",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={width},{height}"))
        .args(more)
        .arg(page)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The positions of the pictures that are shown, those that are wider than their boxes, and the
/// real and the full width of the page: in a frame, because windows have a least width.
fn measured(browser: &Path, folder: &Path, html: &str, width: u32) -> Value {
    const SCRIPT: &str = "const frame = document.querySelector('iframe'); frame.onload = () => { \
        const page = frame.contentDocument, root = page.documentElement; \
        const seen = {page: root.scrollWidth, window: frame.contentWindow.innerWidth, \
        body: page.body.scrollWidth, high: root.scrollHeight, boxes: {}, cut: []}; \
        for (const svg of page.querySelectorAll('figure svg')) { \
        const at = svg.getBoundingClientRect(), box = svg.parentElement; \
        if (at.width === 0) continue; const id = svg.closest('figure').id; \
        if (box.scrollWidth > box.clientWidth) seen.cut.push(id); \
        seen.boxes[id] = [at.left, at.top, at.width, at.height]; } \
        document.body.textContent = JSON.stringify(seen); };";
    let page = html.replace('&', "&amp;").replace('"', "&quot;");
    let framed = format!(
        "<!doctype html><body><iframe style=\"border:0;width:{width}px;height:900px\" \
         srcdoc=\"{page}\"></iframe><script>{SCRIPT}</script>"
    );
    let copy = folder.join("measured.html");
    fs::write(&copy, framed).unwrap();
    let dom = browse(browser, &address(&copy), 1400, 1000, &["--dump-dom"]);
    let text =
        &dom[dom.find("{\"page\"").unwrap_or_else(|| panic!("{dom}"))..dom.rfind('}').unwrap() + 1];
    serde_json::from_str(text).unwrap()
}

/// A screenshot of a page.
struct Screen {
    width: usize,
    pixels: Vec<[u8; 3]>,
}

impl Screen {
    fn of(browser: &Path, folder: &Path, html: &str, size: (u32, u32), dark: bool) -> Screen {
        let (page, file) = (folder.join("shot.html"), folder.join("shot.png"));
        fs::write(&page, html).unwrap();
        let mut more = vec![format!("--screenshot={}", file.display())];
        // 0 is dark, 1 light.
        more.push(format!("--blink-settings=preferredColorScheme={}", i32::from(!dark)));
        browse(browser, &address(&page), size.0, size.1, &more);
        let mut reader = png::Decoder::new(std::io::BufReader::new(fs::File::open(&file).unwrap()))
            .read_info()
            .unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut bytes).unwrap();
        assert_eq!(info.bit_depth, png::BitDepth::Eight);
        let step = info.color_type.samples();
        let pixels = bytes[..info.buffer_size()]
            .chunks(step)
            .map(|pixel| [pixel[0], pixel[1], pixel[2]])
            .collect();
        Screen { width: info.width as usize, pixels }
    }

    /// The number of pixels in a box (left, top, right, bottom) with nearly this colour.
    fn count(&self, [left, top, right, bottom]: [f64; 4], colour: [u8; 3]) -> f64 {
        let near = |pixel: &[u8; 3]| pixel.iter().zip(colour).all(|(a, b)| a.abs_diff(b) <= 48);
        let rows =
            top.max(0.0) as usize..(bottom.ceil() as usize).min(self.pixels.len() / self.width);
        let columns = left.max(0.0) as usize..(right.ceil() as usize).min(self.width);
        let row = |y: usize| {
            self.pixels[y * self.width..][columns.clone()]
                .iter()
                .filter(|pixel| near(pixel))
                .count()
        };
        rows.map(row).sum::<usize>() as f64
    }
}

fn rgb(hex: &str) -> [u8; 3] {
    [1, 3, 5].map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
}

/// The page's counterpart of a colour in the dark.
fn in_the_dark(html: &str, colour: &str) -> [u8; 3] {
    let rule = format!(".picture [stroke=\"{colour}\"]{{stroke:");
    rgb(&html.split(&rule).nth(1).unwrap_or_else(|| panic!("no counterpart of {colour}"))[..7])
}

/// Pictures of the page with less ink on the screen than in the SVG: which, and the missing part.
fn pale(shown: &Shown, boxes: &Value, screen: &Screen, dark: bool) -> Vec<String> {
    let mut pale = Vec::new();
    let colour = |hex: &str| if dark { in_the_dark(&shown.html, hex) } else { rgb(hex) };
    for (id, place) in boxes.as_object().unwrap() {
        let [left, top, wide, _] = [0, 1, 2, 3].map(|i| place[i].as_f64().unwrap());
        let picture = shown.picture(id);
        let scale = wide / picture.size().0;
        let at = |[a, b, c, d]: [f64; 4]| {
            [left + scale * a, top + scale * b, left + scale * c, top + scale * d]
        };
        // Colour, box, minimum number of pixels.
        let mut expected: Vec<(&str, [f64; 4], f64)> = Vec::new();
        let curves = picture.curves();
        // The curves of classes lie on each other: the last one is on top.
        let hidden = if id.ends_with("roc") { curves.len() - 1 } else { 0 };
        for curve in curves.into_iter().skip(hidden) {
            let points = curve.points();
            // Two pixels wide; other curves may lie on parts of it.
            let long = scale * (points[points.len() - 1].0 - points[0].0);
            expected.push((&curve.attributes["stroke"], picture.plot(), 0.6 * long));
        }
        for bar in picture.elements.iter().filter(|element| element.is("rect", "height", "8.5")) {
            let [x, y, wide, high] = ["x", "y", "width", "height"].map(|key| bar.number(key));
            expected.push((
                &bar.attributes["fill"],
                [x, y, x + wide, y + high],
                0.7 * scale * scale * wide * high,
            ));
        }
        for disc in picture
            .elements
            .iter()
            .filter(|element| id.starts_with("topology") && element.name == "circle")
        {
            let [x, y, r] = ["cx", "cy", "r"].map(|key| disc.number(key));
            // There may be words in it.
            expected.push((
                &disc.attributes["fill"],
                [x - r, y - r, x + r, y + r],
                1.2 * scale * scale * r * r,
            ));
        }
        assert!(!expected.is_empty(), "{id}: nothing is known of this picture");
        for (hex, part, least) in expected {
            let found = screen.count(at(part), colour(hex));
            if found < least {
                pale.push(format!("{id}: {found} pixels of {hex}, at least {least:.0} expected"));
            }
        }
    }
    pale
}

#[test]
#[ignore = "slow"]
fn a_browser_paints_the_pictures() {
    let Some(browser) = browser() else {
        println!("skipped: there is no chromium on the path");
        return;
    };
    let shown = Shown::new();
    let folder = shown.folder.path();
    let figures = shown.html.matches("<figure id=").count();
    for width in [1280, 700, 390] {
        let seen = measured(&browser, folder, &shown.html, width);
        assert_eq!(seen["window"], width);
        assert_eq!(seen["cut"], json!([]), "at {width} pixels");
        assert_eq!(seen["boxes"].as_object().unwrap().len(), figures, "at {width} pixels");
        assert_eq!(
            seen["page"], seen["window"],
            "at {width} pixels the page is wider than its window"
        );
        assert!(seen["body"].as_f64() <= seen["window"].as_f64(), "{seen}");
    }
    // Without the narrow pictures the check finds those that are cut.
    let only_wide = shown.html.replace(".wide{display:none}.narrow{display:block}", "");
    let seen = measured(&browser, folder, &only_wide, 390);
    assert_eq!(seen["cut"].as_array().unwrap().len(), figures);
    let seen = measured(&browser, folder, &shown.html, 1200);
    let boxes = &seen["boxes"];
    for place in boxes.as_object().unwrap().values() {
        assert!(place[2].as_f64().unwrap() > 600.0 && place[3].as_f64().unwrap() > 100.0, "{seen}");
    }
    let size = (1200, seen["high"].as_u64().unwrap() as u32 + 50);
    let shoot =
        |html: &str, dark: bool| Screen::of(&browser, shown.folder.path(), html, size, dark);
    for dark in [false, true] {
        let screen = shoot(&shown.html, dark);
        let ground = u32::from(screen.pixels[0][0]);
        assert!(
            if dark { ground < 60 } else { ground > 240 },
            "the page's ground is {:?}",
            screen.pixels[0]
        );
        assert_eq!(pale(&shown, boxes, &screen, dark), Vec::<String>::new(), "dark: {dark}");
    }
    // A page without its curves fails the check: all of them, and nothing else.
    let mut bare = shown.html.clone();
    let still = || CURVES.iter().filter(|(id, ..)| id.ends_with("-rounds"));
    for (id, ..) in still() {
        for curve in shown.picture(id).curves() {
            bare = bare.replace(
                &format!("d=\"{}\" fill=\"none\"", curve.attributes["d"]),
                "d=\"\" fill=\"none\"",
            );
        }
    }
    let missed = pale(&shown, boxes, &shoot(&bare, false), false);
    assert_eq!(missed.len(), 2 * still().count(), "{missed:?}");
    assert!(
        still().all(|(id, ..)| missed
            .iter()
            .filter(|line| line.starts_with(&format!("{id}:")))
            .count()
            == 2)
    );
}

/// With scripts each figure is one chart, whose axis is switched; nothing is wider than the window.
#[test]
#[ignore = "slow"]
fn charts_are_drawn_and_their_axis_is_switched() {
    const SCRIPT: &str = "const frame = document.querySelector('iframe'); frame.onload = () => { \
        const page = frame.contentDocument, seen = {charts: [], window: frame.contentWindow\
        .innerWidth, page: page.documentElement.scrollWidth}; \
        for (const figure of page.querySelectorAll('figure.curves')) { \
        const label = () => figure.querySelector('.u-legend .u-label').textContent; \
        figure.before = label(); figure.querySelectorAll('.bar button')[1]?.click(); } \
        setTimeout(() => { for (const figure of page.querySelectorAll('figure.curves')) { \
        const label = () => figure.querySelector('.u-legend .u-label').textContent; \
        const canvas = figure.querySelector('canvas'); \
        const inked = [...canvas.getContext('2d').getImageData(0, 0, canvas.width, \
        canvas.height).data].filter((value) => value !== 0).length; \
        seen.charts.push({id: figure.id, before: figure.before, after: label(), inked, \
        stills: [...figure.querySelectorAll('.picture')].filter((one) => one.clientWidth).length, \
        buttons: figure.querySelectorAll('.bar button').length}); } \
        document.body.textContent = JSON.stringify(seen); }, 500); };";
    let Some(browser) = browser() else {
        println!("skipped: there is no chromium on the path");
        return;
    };
    let shown = Shown::new();
    for width in [1280, 390] {
        let page = shown.whole.replace('&', "&amp;").replace('"', "&quot;");
        let framed = format!(
            "<!doctype html><body><iframe style=\"border:0;width:{width}px;height:900px\" \
             srcdoc=\"{page}\"></iframe><script>{SCRIPT}</script>"
        );
        let copy = shown.folder.path().join("framed.html");
        fs::write(&copy, framed).unwrap();
        let dom = browse(
            &browser,
            &address(&copy),
            1400,
            1000,
            &["--dump-dom", "--virtual-time-budget=3000"],
        );
        let begin = dom.find("{\"charts\"").unwrap_or_else(|| panic!("{dom}"));
        let seen: Value = serde_json::from_str(&dom[begin..dom.rfind('}').unwrap() + 1]).unwrap();
        let charts = seen["charts"].as_array().unwrap();
        // Of each of the two runs ROC and calibration, which have one axis.
        assert_eq!(charts.len(), 4 + 2 * 2, "{seen}");
        for chart in charts {
            let id = chart["id"].as_str().unwrap();
            let one = ["roc", "calibration"].iter().any(|end| id.ends_with(end));
            let buttons = if one { 0 } else { 4 };
            if !one {
                assert_eq!(chart["before"], "rounds", "{chart}");
                assert_eq!(chart["after"], "payload that a node has sent", "{chart}");
            }
            let shown = (&chart["stills"], &chart["buttons"]);
            assert_eq!(shown, (&json!(0), &json!(buttons)), "{chart}");
            assert!(chart["inked"].as_u64() > Some(1000), "{chart}");
        }
        assert_eq!(seen["page"], seen["window"], "at {width} pixels");
    }
}
