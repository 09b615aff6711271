//! A network in the terminal, drawn again once a second, with keys.

use std::{
    io,
    time::{Duration, Instant},
};

use ratatui::{
    Frame, Terminal,
    backend::Backend,
    crossterm::event::{self, Event as Input, KeyCode, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout},
    style::{Color, Modifier, Style},
    text::Line,
    widgets::{Block, Paragraph, Wrap},
};

use gradvine_page::{Network, Node};

use super::table::{progress, rows, worst_first};

/// How often it is drawn.
const EVERY: Duration = Duration::from_secs(1);

/// The keys, as the last line shows them.
const KEYS: &str = "q quit   j k or arrows: choose a node   Enter: its details   e: events";

/// What is shown below the table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    Events,
    Node,
}

/// What the user has chosen: a row, and what is shown below the table.
pub(crate) struct View {
    row: usize,
    below: Below,
}

impl Default for View {
    fn default() -> View {
        View { row: 0, below: Below::Events }
    }
}

/// Follows a run until the user quits. `look` reads what is known now; an error is shown, and it is
/// called again.
///
/// # Errors
/// If the terminal cannot be used.
pub fn live(look: &mut dyn FnMut() -> Result<Network, String>) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let followed = follow(&mut terminal, look);
    ratatui::try_restore()?;
    followed
}

fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    look: &mut dyn FnMut() -> Result<Network, String>,
) -> io::Result<()> {
    let (mut view, mut known, mut problem) = (View::default(), None, None);
    let mut next = Instant::now();
    loop {
        if Instant::now() >= next {
            match look() {
                Ok(network) => (known, problem) = (Some(network), None),
                Err(text) => problem = Some(text),
            }
            next = Instant::now() + EVERY;
        }
        draw(terminal, known.as_ref(), problem.as_deref(), &view)?;
        if event::poll(next.saturating_duration_since(Instant::now()))?
            && let Input::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let stops = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if stops => return Ok(()),
                code => view.press(code, known.as_ref().map_or(0, |known| known.nodes.len())),
            }
        }
    }
}

impl View {
    /// Upon a key, with so many nodes.
    pub(crate) fn press(&mut self, key: KeyCode, nodes: usize) {
        match key {
            KeyCode::Char('j') | KeyCode::Down => {
                self.row = (self.row + 1).min(nodes.saturating_sub(1));
            }
            KeyCode::Char('k') | KeyCode::Up => self.row = self.row.saturating_sub(1),
            KeyCode::Enter => self.below = Below::Node,
            KeyCode::Char('e') => self.below = Below::Events,
            _ => {}
        }
    }
}

/// Draws what is known.
pub(crate) fn draw<B: Backend>(
    terminal: &mut Terminal<B>,
    known: Option<&Network>,
    problem: Option<&str>,
    view: &View,
) -> Result<(), B::Error> {
    terminal.draw(|frame| {
        let Some(network) = known else {
            let text = problem.unwrap_or("nothing is known yet");
            frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), frame.area());
            return;
        };
        whole(frame, network, problem, view);
    })?;
    Ok(())
}

fn whole(frame: &mut Frame<'_>, network: &Network, problem: Option<&str>, view: &View) {
    let width = usize::from(frame.area().width);
    let nodes = worst_first(network);
    let table = rows(network, Some(width));
    let height = (table.lines().count() as u16).min(frame.area().height / 2);
    let [head, middle, below, keys] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(height),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let bold = colour(&network.state).add_modifier(Modifier::BOLD);
    let mut lines =
        vec![Line::styled(network.sentence.clone(), bold), Line::raw(progress(network))];
    lines.extend(problem.map(|text| Line::styled(text.to_string(), Style::new().fg(Color::Red))));
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }), head);
    let line = |(number, text): (usize, &str)| {
        // The first line has the heads.
        let node = number.checked_sub(1).and_then(|at| nodes.get(at));
        let style = match node {
            None => Style::new().add_modifier(Modifier::BOLD),
            Some(node) if network.holding_up.contains(&node.name) => Style::new().fg(Color::Red),
            Some(node) => colour(&node.state),
        };
        let chosen = number == view.row + 1 && node.is_some();
        let style = if chosen { style.add_modifier(Modifier::REVERSED) } else { style };
        Line::styled(text.to_string(), style)
    };
    let lines: Vec<Line<'_>> = table.lines().enumerate().map(line).collect();
    // The chosen row stays in sight.
    let hidden = (view.row as u16 + 2).saturating_sub(middle.height);
    frame.render_widget(Paragraph::new(lines).scroll((hidden, 0)), middle);
    let (title, lines) = match (view.below, nodes.get(view.row)) {
        (Below::Node, Some(node)) => (node.name.clone(), details(node)),
        _ => ("events".to_string(), events(network, usize::from(below.height))),
    };
    let block = Block::bordered().title(title);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(block), below);
    frame.render_widget(Line::styled(KEYS, Style::new().add_modifier(Modifier::DIM)), keys);
}

/// The newest events that fit so many lines, the newest first.
fn events(network: &Network, lines: usize) -> Vec<Line<'static>> {
    let newest = network.events.iter().rev().take(lines);
    newest
        .map(|event| {
            let time = event.time.get(11..19).unwrap_or_default();
            let style = match event.level.as_str() {
                "error" => Style::new().fg(Color::Red),
                "warning" => Style::new().fg(Color::Yellow),
                _ => Style::new(),
            };
            Line::styled(format!("{time} {:7} {}", event.level, event.text), style)
        })
        .collect()
}

fn details(node: &Node) -> Vec<Line<'static>> {
    let mut lines = vec![Line::raw(format!("{} {}", node.name, node.reason))];
    for (name, value) in &node.measures {
        lines.push(Line::raw(format!("{name} {value:.4}")));
    }
    for link in &node.links {
        let how = match (link.up, link.relayed) {
            (false, _) => format!("down: {}", link.reason),
            (true, false) => "direct".into(),
            (true, true) => "through a relay".into(),
        };
        lines.push(Line::raw(format!("link to {}: {how}", link.to)));
    }
    lines.extend(node.warnings.iter().map(|text| Line::raw(text.clone())));
    lines
}

fn colour(state: &str) -> Style {
    match state {
        "failed" | "silent" | "left" | "held-up" => Style::new().fg(Color::Red),
        "waiting" | "unknown" | "stopped" => Style::new().fg(Color::Yellow),
        "done" => Style::new().fg(Color::Green),
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::network::tests::example;

    fn drawn(width: u16, keys: &[KeyCode]) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, 24)).unwrap();
        let (network, mut view) = (example(), View::default());
        keys.iter().for_each(|key| view.press(*key, network.nodes.len()));
        draw(&mut terminal, Some(&network), None, &view).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_worst_node_stands_first_and_the_keys_are_shown() {
        let text = drawn(100, &[]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("berlin and rome wait for oslo"), "{text}");
        let first = lines.iter().position(|line| line.starts_with("\"node ")).unwrap();
        assert!(lines[first + 1].contains("oslo"), "{text}");
        assert!(text.contains("q quit") && text.contains("events"), "{text}");
    }

    #[test]
    fn a_node_is_chosen_and_shown_in_detail() {
        let text = drawn(100, &[KeyCode::Down, KeyCode::Enter]);
        assert!(text.contains("link to"), "{text}");
        let narrow = drawn(40, &[KeyCode::Up, KeyCode::Enter]);
        assert!(narrow.contains("oslo"), "{narrow}");
    }
}
