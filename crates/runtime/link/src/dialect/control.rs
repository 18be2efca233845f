//! The dialects of the `flwr` command line.
//!
//! 1.25 names the only federation `default`, later releases name it `@none/default`. `Federation` was renumbered at
//! 1.27: the client's release determines the numbering, or the requested name if the client sends no release (1.25 to
//! 1.29). `StartRunRequest.3` changed its type at 1.28 (`ConfigRecord`, then `SimulationConfig`). Both encode no
//! options as no bytes, and any options configure a simulation, so it is never decoded.

use bytes::Bytes;
use prost::Message as _;
use trellis_wire::proto::*;

use super::Client;
use crate::convert;

/// The name of the only federation in 1.25 and in the store.
pub const FIRST_NAME: &str = "default";
/// Its name in later releases.
const LATER_NAME: &str = "@none/default";

/// Error for runs with simulation options.
pub const NO_SIMULATION: &str = "This SuperLink runs apps on its SuperNodes and does not simulate SuperNodes. Remove the \
    `options` (such as num-supernodes) from the federation or SuperLink connection, and leave out --federation-config.";

/// Returns whether a name means the only federation. An empty name does too.
pub fn is_federation(name: &str) -> bool {
    matches!(name, "" | FIRST_NAME | LATER_NAME)
}

/// Returns the federation's name for this client.
pub fn federation_name(client: &Client) -> &'static str {
    if client.version.is_some() { LATER_NAME } else { FIRST_NAME }
}

/// Encodes the answer to ShowFederation with the numbering of the client.
pub fn show_federation(client: &Client, asked: &str, federation: Federation, now: f64) -> Bytes {
    let now = convert::iso_time(now);
    let first = client.version.is_none() && asked == FIRST_NAME;
    let encoded = if first {
        let Federation { nodes, runs, members, .. } = federation;
        let member_aids = members.into_iter().filter_map(|member| member.account).map(|account| account.id).collect();
        let federation = FirstFederation { name: FIRST_NAME.to_owned(), member_aids, nodes, runs };
        FirstShowFederationResponse { federation: Some(federation), now }.encode_to_vec()
    } else {
        let federation = Federation { name: LATER_NAME.to_owned(), ..federation };
        ShowFederationResponse { federation: Some(federation), now }.encode_to_vec()
    };
    encoded.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use trellis_front::Transport;

    use crate::dialect::Version;

    fn client(version: Option<Version>) -> Client {
        Client { transport: Transport::Grpc, version }
    }

    fn federation() -> Federation {
        let account = Some(Account { id: "a".to_owned(), name: "b".to_owned() });
        Federation {
            nodes: vec![NodeInfo { node_id: 3, ..Default::default() }],
            runs: vec![Run { run_id: 4, ..Default::default() }],
            members: vec![Member { account, role: "owner".to_owned() }],
            ..Default::default()
        }
    }

    #[test]
    fn all_names_of_the_federation_are_known() {
        assert!(["", "default", "@none/default"].into_iter().all(is_federation));
        assert!(!is_federation("@me/default") && !is_federation("Default"));
    }

    #[test]
    fn clients_with_the_first_name_get_the_first_numbering() {
        let bytes = show_federation(&client(None), "default", federation(), 0.0);
        let shown = FirstShowFederationResponse::decode(bytes).unwrap().federation.unwrap();
        assert_eq!((shown.name.as_str(), shown.member_aids.as_slice()), ("default", ["a".to_owned()].as_slice()));
        assert_eq!((shown.nodes[0].node_id, shown.runs[0].run_id), (3, 4));
    }

    #[test]
    fn other_clients_get_the_later_numbering() {
        let announced = Some(Version { major: 1, minor: 30 });
        for (version, asked) in [(None, "@none/default"), (announced, "default"), (announced, "@none/default")] {
            let bytes = show_federation(&client(version), asked, federation(), 0.0);
            let shown = ShowFederationResponse::decode(bytes).unwrap().federation.unwrap();
            assert_eq!((shown.name.as_str(), shown.nodes[0].node_id, shown.runs[0].run_id), ("@none/default", 3, 4));
            assert_eq!(shown.members[0].account.as_ref().unwrap().id, "a");
        }
    }

    /// A ConfigRecord with an item (up to 1.27), a SimulationConfig (from 1.28), and both without options.
    #[test]
    fn both_types_encode_no_options_as_no_bytes() {
        let config_record = [0x0a, 0x03, 0x0a, 0x01, b'k'];
        let simulation_config = [0x08, 0x0a, 0x19, 0, 0, 0, 0, 0, 0, 0, 0];
        for options in [&config_record[..], &simulation_config[..], &[]] {
            let mut request = vec![0x1a, options.len() as u8];
            request.extend_from_slice(options);
            let decoded = StartRunRequest::decode(request.as_slice()).unwrap();
            assert_eq!(decoded.federation_options, options);
        }
    }
}
