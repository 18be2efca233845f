//! Any bytes as a Federation document, and as YAML of any kind.
//!
//! Nothing may panic, a problem has a place in the text, and a federation that was read comes back from its canonical text.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    // A carriage return ends a line of YAML too; what is missing is missed after the last one.
    let lines = text.split(['\n', '\r']).count() + 1;
    if let Err(problems) = trellis_spec::yaml::read(&text, "fuzz.yaml") {
        assert!(!problems.0.is_empty());
    }
    match trellis_spec::read_with_warnings(&text, "fuzz.yaml") {
        Ok(reading) => {
            for federation in reading.federations {
                let canonical = trellis_spec::to_yaml(&federation);
                let again = trellis_spec::read(&canonical, "canonical.yaml").expect("the canonical text can be read");
                assert_eq!(again, [federation], "{canonical}");
            }
        }
        Err(problems) => {
            for problem in problems.0 {
                assert!((1..=lines).contains(&problem.place.line), "{problem}");
            }
        }
    }
});
