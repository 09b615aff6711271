//! The page's style: light and dark by the reader's setting, and print, which is always light.
//!
//! Pictures name their colours themselves, so that each is a complete file. In the dark every
//! colour is replaced by its counterpart: a rule of a style sheet overrides an attribute.

use std::fmt::Write as _;

use crate::sheet;

/// Each colour of the pictures and its counterpart in the dark.
pub(super) const COLOURS: [(&str, &str); 15] = [
    ("#ffffff", "#14191f"),
    (sheet::INK, "#e4eaf0"),
    (sheet::FAINT, "#a3b0bd"),
    (sheet::RULE, "#39444f"),
    (sheet::BLUE, "#6aa9e8"),
    (sheet::ORANGE, "#f0a050"),
    (sheet::RED, "#f27b7b"),
    (sheet::GREY, "#71859a"),
    ("#0064a8", "#58aef2"),
    ("#d55e00", "#ff9147"),
    ("#008a62", "#3cc99a"),
    ("#b0427f", "#ea8abb"),
    ("#a87900", "#e0b53c"),
    ("#3a9bd1", "#a6dcfa"),
    ("#7a4ea3", "#b99be6"),
];

const PLAIN: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#1b2733;--faint:#5d6b78;--rule:#d5dce3;\
--wash:#f4f7f9;--link:#0064a8;--bad:#b91c1c;--hit:0 100 168;--miss:213 94 0}
@media screen and (prefers-color-scheme:dark){\
:root{--paper:#14191f;--ink:#e4eaf0;--faint:#a3b0bd;--rule:#39444f;\
--wash:#1c232b;--link:#58aef2;--bad:#f27b7b;--hit:88 174 242;--miss:255 145 71}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1.25rem \
                     4rem;max-width:72rem;background:var(--paper);color:var(--ink);font:15px/1.55 \
                     system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu \
                     Sans\",sans-serif;overflow-wrap:break-word}
h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0}
h2{font-size:1.25rem;margin:2.75rem 0 .75rem;padding-bottom:.3rem;border-bottom:1px solid \
                     var(--rule)}
h3{font-size:1rem;margin:1.75rem 0 .5rem}
a{color:var(--link)}
nav ul{list-style:none;padding:0;margin:.75rem 0;display:flex;flex-wrap:wrap;gap:.25rem 1.1rem}
figure{margin:1.5rem 0 2rem}
figcaption,.note,footer{color:var(--faint);font-size:.87rem}
.picture,.table{overflow-x:auto}
.picture:focus-visible,.table:focus-visible,summary:focus-visible{outline:2px solid \
                     var(--link);outline-offset:2px}
.picture svg{display:block;width:100%;max-width:61rem;height:auto;min-width:38rem}
.narrow{display:none}
.curves .still{display:none}
.bar{display:flex;flex-wrap:wrap;gap:.4rem;margin:0 0 .5rem}
.bar[hidden]{display:none}
.bar button{font:inherit;font-size:.82rem;padding:.15rem .6rem;border:1px solid var(--rule);\
border-radius:4px;background:var(--paper);color:var(--ink);cursor:pointer}
.bar button[aria-pressed=true]{background:var(--link);border-color:var(--link);\
color:var(--paper)}
.bar button:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.tip{position:absolute;z-index:1;padding:.1rem .45rem;border:1px solid var(--rule);\
border-radius:4px;background:var(--paper);font-size:.78rem;white-space:nowrap;\
pointer-events:none}
@media screen and (max-width:42rem){.wide{display:none}.narrow{display:block}}
.picture.narrow svg{min-width:0;max-width:32rem}
table{border-collapse:separate;border-spacing:0;font-size:.82rem;font-variant-numeric:tabular-nums}
caption{min-width:17rem;max-width:calc(100vw - 2.5rem);
text-align:left;color:var(--faint);padding:.2rem 0 .4rem}
th,td{padding:.28rem .5rem;border-bottom:1px solid \
                     var(--rule);text-align:left;vertical-align:top;max-width:22rem}
th.n,td.n{text-align:right}
td.n{white-space:nowrap}
tbody th{position:sticky;left:0;background:var(--paper)}
tbody th,td.w{white-space:nowrap}
thead th{font-weight:600;border-bottom:2px solid var(--rule);vertical-align:bottom}
tbody tr:hover,tbody tr:hover th{background:var(--wash)}
strong{font-weight:700}
.confusion th,.confusion td{padding:.3rem \
                     .4rem;text-align:right;border:1px solid var(--paper)}
.confusion thead th:first-child,.confusion tbody th{text-align:left;white-space:nowrap}
.table+.table{margin-top:1.5rem}
.confusion .up{writing-mode:vertical-rl;transform:rotate(180deg);white-space:nowrap}
.confusion .z{color:var(--faint);opacity:.6}
.confusion .hit{background:rgb(var(--hit)/var(--s))}
.confusion .miss{background:rgb(var(--miss)/var(--s))}
.confusion .strong{color:var(--paper)}
.bad{color:var(--bad)}
@media screen and (max-width:42rem){th,td{padding:.28rem .35rem}
.confusion th,.confusion td{padding:.3rem .25rem}
tbody th{white-space:normal;max-width:11rem}}
details{margin:.5rem 0;border:1px solid var(--rule);border-radius:6px;padding:.35rem .75rem}
summary{cursor:pointer;font-size:.9rem}
pre{overflow-x:auto;background:var(--wash);padding:.75rem 1rem;border-radius:6px;font:12.5px/1.5 \
                     ui-monospace,\"DejaVu Sans Mono\",Menlo,Consolas,monospace}
footer{margin-top:3rem;border-top:1px solid var(--rule);padding-top:.75rem}
@page{margin:14mm}
@media print{:root{color-scheme:light}body{max-width:none;padding:0;font-size:10pt}\
nav{display:none}.picture svg{min-width:0}.picture,.table{overflow:visible}
figure,tr{break-inside:avoid}h2,h3{break-after:avoid}table{font-size:7pt}th,td{padding:.15rem \
                     .3rem}a{color:inherit;text-decoration:none}details:not([open]){display:none}}
";

/// The counterpart of a colour in the dark.
pub(super) fn in_the_dark(colour: &str) -> &str {
    COLOURS.iter().find(|(light, _)| *light == colour).map_or(colour, |(_, dark)| dark)
}

pub(super) fn sheet() -> String {
    let mut css = String::from(PLAIN) + "@media screen and (prefers-color-scheme:dark){\n";
    for (light, dark) in COLOURS {
        let _ = writeln!(
            css,
            ".picture [fill=\"{light}\"]{{fill:{dark}}}.picture \
             [stroke=\"{light}\"]{{stroke:{dark}}}"
        );
    }
    css + "}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_of_a_chart_has_its_counterpart() {
        for colour in crate::chart::COLOURS {
            assert!(COLOURS.iter().any(|(light, _)| *light == colour), "{colour}");
        }
    }
}
