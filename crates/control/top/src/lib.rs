//! `trellis top`: federations, nodes and runs, live. State ([`view`]), rendering ([`draw`]), events of the server (`feed`) and
//! the terminal ([`live()`]) are separate; only `live` needs a terminal. The wall around ratatui.

mod draw;
mod feed;
mod live;
#[cfg(test)]
mod scene;
mod view;

use std::collections::BTreeMap;

use trellis_api::{CallError, Client};

pub use draw::plain;
pub use feed::federations;
pub use live::live;
pub use view::View;

use view::{Connection, Request, Update};

/// The current state of everything, without a terminal.
pub async fn snapshot(client: &Client, only: Option<&str>) -> Result<View, CallError> {
    let mut view = View::new(client.endpoint());
    view.apply(Update::Connection(Connection::Live));
    if let Request::Show(name) = view.apply(Update::Federations(federations(client, only).await?)) {
        view.apply(Update::Details(feed::details(client, &name, &mut BTreeMap::new()).await?));
    }
    Ok(view)
}
