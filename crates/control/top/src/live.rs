//! Shows the view on a terminal until a key or a signal ends it, and then restores the terminal.

use std::io;
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::{mpsc, watch};
use trellis_api::Client;

use crate::draw::{Palette, draw};
use crate::feed::feed;
use crate::view::{Key, Request, Update, View};

/// Timeout for a key before updates are applied.
const KEY_TIMEOUT: Duration = Duration::from_millis(100);
/// Pending updates; the feed waits if there are more.
const MAX_UPDATES: usize = 64;

/// Runs until the user quits or `stop` completes.
pub fn live(
    client: Client,
    only: Option<String>,
    colours: bool,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (updates, mut received) = mpsc::channel(MAX_UPDATES);
    let (choose, chosen) = watch::channel(None);
    let view = View::new(client.endpoint());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = thread::Builder::new().name("feed".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = feed(client, only, chosen, updates.clone()) => {}
                () = stop => drop(updates.send(Update::Stop).await),
            }
        });
    })?;
    // From here on a panic restores the terminal, too.
    let mut terminal = ratatui::try_init()?;
    let outcome = show(&mut terminal, view, &mut received, &choose, Palette { colours });
    ratatui::restore();
    // The feed ends with its next update.
    drop((received, choose));
    let _ = listener.join();
    outcome
}

fn show(
    terminal: &mut DefaultTerminal,
    mut view: View,
    received: &mut mpsc::Receiver<Update>,
    choose: &watch::Sender<Option<String>>,
    palette: Palette,
) -> io::Result<()> {
    let mut stale = true;
    loop {
        if stale {
            terminal.draw(|frame| draw(frame, &view, palette))?;
        }
        stale = false;
        let mut requests = Vec::new();
        if event::poll(KEY_TIMEOUT)? {
            match event::read()? {
                Event::Key(pressed) => requests.extend(key(pressed).map(|key| view.press(key))),
                // The next frame has the new size.
                Event::Resize(..) => {}
                _ => continue,
            }
            stale = true;
        }
        while let Ok(update) = received.try_recv() {
            requests.push(view.apply(update));
            stale = true;
        }
        for request in requests {
            match request {
                Request::Nothing => {}
                Request::Quit => return Ok(()),
                Request::Show(name) => drop(choose.send_replace(Some(name))),
            }
        }
    }
}

fn key(pressed: KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    let control = pressed.modifiers.contains(KeyModifiers::CONTROL);
    Some(match pressed.code {
        KeyCode::Char('c' | 'd') if control => Key::Quit,
        KeyCode::Char('q') => Key::Quit,
        KeyCode::Up | KeyCode::Char('k') => Key::Up,
        KeyCode::Down | KeyCode::Char('j') => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::First,
        KeyCode::End => Key::Last,
        KeyCode::Tab | KeyCode::Right => Key::Next,
        KeyCode::BackTab | KeyCode::Left => Key::Previous,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc | KeyCode::Backspace => Key::Back,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        let of = |code, modifiers| key(KeyEvent::new(code, modifiers));
        assert_eq!(of(KeyCode::Char('q'), KeyModifiers::NONE), Some(Key::Quit));
        assert_eq!(of(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(of(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(of(KeyCode::BackTab, KeyModifiers::SHIFT), Some(Key::Previous));
        let release = KeyEvent { kind: KeyEventKind::Release, ..KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE) };
        assert_eq!(key(release), None);
    }
}
