//! The view on a terminal: keys in, pictures out. Whatever ends it, the terminal is as it was before.

use std::io;
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::sync::{mpsc, watch};
use trellis_api::Client;

use super::draw::{Palette, draw};
use super::feed::feed;
use super::view::{Key, News, View, Wish};
use crate::process::StopSignals;

/// A key is waited for so long before news are looked at.
const GLANCE: Duration = Duration::from_millis(100);
/// News that wait to be shown; whoever tells more waits.
const MOST_NEWS: usize = 64;

/// Shows until the user, or a signal, ends it.
pub fn live(client: Client, only: Option<String>, palette: Palette) -> io::Result<()> {
    let (news, mut heard) = mpsc::channel(MOST_NEWS);
    let (choose, chosen) = watch::channel(None);
    let view = View::new(client.endpoint());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = thread::Builder::new().name("feed".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = feed(client, only, chosen, news.clone()) => {}
                () = stopped(&news) => {}
            }
        });
    })?;
    // From here on also a panic gives the terminal back.
    let mut terminal = ratatui::try_init()?;
    let outcome = show(&mut terminal, view, &mut heard, &choose, palette);
    ratatui::restore();
    // Nobody listens any more: the feed ends with what it does next.
    drop((heard, choose));
    let _ = listener.join();
    outcome
}

/// Tells of a signal, once.
async fn stopped(news: &mpsc::Sender<News>) {
    let Ok(mut signals) = StopSignals::listen() else { return std::future::pending().await };
    signals.next().await;
    let _ = news.send(News::Stop).await;
}

fn show(
    terminal: &mut DefaultTerminal,
    mut view: View,
    heard: &mut mpsc::Receiver<News>,
    choose: &watch::Sender<Option<String>>,
    palette: Palette,
) -> io::Result<()> {
    let mut stale = true;
    loop {
        if stale {
            terminal.draw(|frame| draw(frame, &view, palette))?;
        }
        stale = false;
        let mut wishes = Vec::new();
        if event::poll(GLANCE)? {
            match event::read()? {
                Event::Key(pressed) => wishes.extend(key(pressed).map(|key| view.press(key))),
                // The next picture has the new size.
                Event::Resize(..) => {}
                _ => continue,
            }
            stale = true;
        }
        while let Ok(news) = heard.try_recv() {
            wishes.push(view.hear(news));
            stale = true;
        }
        for wish in wishes {
            match wish {
                Wish::Nothing => {}
                Wish::Quit => return Ok(()),
                Wish::Show(name) => drop(choose.send_replace(Some(name))),
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
