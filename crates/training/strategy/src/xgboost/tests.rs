use serde_json::Value;

use super::*;

/// Created by XGBoost 3.2 (binary:logistic; multi:softprob for several classes; depth 2, 3 features).
const ONE: &[u8] = include_bytes!("../../tests/data/xgboost/one.json");
const OTHER: &[u8] = include_bytes!("../../tests/data/xgboost/other.json");
/// Two trees in parallel.
const PARALLEL: &[u8] = include_bytes!("../../tests/data/xgboost/parallel.json");
const THREE_ROUNDS: &[u8] = include_bytes!("../../tests/data/xgboost/three_rounds.json");
/// One round of three classes.
const CLASSES_A: &[u8] = include_bytes!("../../tests/data/xgboost/classes_a.json");
const CLASSES_B: &[u8] = include_bytes!("../../tests/data/xgboost/classes_b.json");
/// The result of `aggregate_bagging` of Flower 1.42 for an empty model and then `ONE`, `OTHER` and `PARALLEL`.
const JOINED: &[u8] = include_bytes!("../../tests/data/xgboost/joined.json");
/// The same for `OTHER`, then `THREE_ROUNDS`, `CLASSES_A` and `ONE`.
const JOINED_COMPAT: &[u8] = include_bytes!("../../tests/data/xgboost/joined_compat.json");

fn replies(models: &[&[u8]]) -> Vec<Vec<u8>> {
    models.iter().map(|model| model.to_vec()).collect()
}

/// Compares values. Python formats numbers differently, so the last bit may differ.
fn assert_same(found: &Value, expected: &Value, place: &str) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{place}");
            for (name, value) in expected {
                assert_same(&found[name], value, &format!("{place}.{name}"));
            }
        }
        (Value::Array(found), Value::Array(expected)) => {
            assert_eq!(found.len(), expected.len(), "{place}");
            for (index, value) in expected.iter().enumerate() {
                assert_same(&found[index], value, &format!("{place}[{index}]"));
            }
        }
        (Value::Number(found), Value::Number(expected)) => {
            let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
            assert!((found - expected).abs() <= 1e-15 * expected.abs(), "{place}: {found} instead of {expected}");
        }
        _ => assert_eq!(found, expected, "{place}"),
    }
}

fn parsed(json: &[u8]) -> Value {
    serde_json::from_slice(json).unwrap()
}

#[test]
fn bagging_matches_flower() {
    let joined = bagging(b"", &replies(&[ONE, OTHER, PARALLEL])).unwrap();
    assert_same(&parsed(&joined), &parsed(JOINED), "");
    let compat = bagging_compat(b"", &replies(&[ONE, OTHER, PARALLEL])).unwrap();
    assert_eq!(compat, joined, "equal if each reply has one round of one class");
    let later = bagging(&bagging(b"", &replies(&[ONE, OTHER])).unwrap(), &replies(&[PARALLEL])).unwrap();
    assert_eq!(later, joined, "in one round or in two");
}

#[test]
fn compat_matches_flower_for_replies_of_several_rounds() {
    let joined = bagging_compat(OTHER, &replies(&[THREE_ROUNDS, CLASSES_A, ONE])).unwrap();
    assert_same(&parsed(&joined), &parsed(JOINED_COMPAT), "");
}

#[test]
fn all_trees_are_added_with_their_class_and_round() {
    let joined = parsed(&bagging(CLASSES_A, &replies(&[CLASSES_B, THREE_ROUNDS])).unwrap());
    let model = &joined["learner"]["gradient_booster"]["model"];
    assert_eq!(model["gbtree_model_param"]["num_trees"], "9");
    assert_eq!(model["iteration_indptr"], serde_json::json!([0, 3, 6, 7, 8, 9]));
    assert_eq!(model["tree_info"], serde_json::json!([0, 1, 2, 0, 1, 2, 0, 0, 0]));
    let trees = model["trees"].as_array().unwrap();
    let ids: Vec<u64> = trees.iter().map(|tree| tree["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (0..9).collect::<Vec<_>>());
    let theirs = &parsed(CLASSES_B)["learner"]["gradient_booster"]["model"]["trees"][2];
    assert_eq!(trees[5]["split_conditions"], theirs["split_conditions"]);
}

#[test]
fn unchanged_parts_keep_their_bytes() {
    assert_eq!(bagging(b"", &replies(&[ONE])).unwrap(), ONE);
    assert_eq!(bagging(ONE, &[]).unwrap(), ONE);
    assert_eq!(bagging(b"", &[]).unwrap(), b"");
    let joined = String::from_utf8(bagging(ONE, &replies(&[OTHER])).unwrap()).unwrap();
    let expected = String::from_utf8(ONE.to_vec()).unwrap();
    let tree = &expected[expected.find(r#"{"base_weights""#).unwrap()..expected.find(r#"]},"name":"gbtree""#).unwrap()];
    assert!(tree.contains("6.25E-2") && joined.contains(tree), "numbers are not reformatted");
}

#[test]
fn errors_name_the_reply_and_the_location() {
    let text = |model: &[u8]| String::from_utf8(model.to_vec()).unwrap();
    let dart = text(ONE).replace(r#""model":"#, r#""gbtree":"#);
    let few = text(ONE).replace(r#""num_trees":"1""#, r#""num_trees":"2""#);
    let odd = text(ONE).replace(r#""num_parallel_tree":"1""#, r#""num_parallel_tree":"many""#);
    let no_tree = text(ONE).replace(r#""trees":[{"#, r#""trees":[7],"old":[{"#);
    for (global, reply, expected) in [
        (text(ONE), "{\"learner\":\n  {]".to_string(), "reply 2 of 2: it is not JSON: "),
        (text(ONE), "{\"learner\":\n  {]".to_string(), " at line 2 column 4"),
        ("[]".into(), text(ONE), "the global model: the model is not as XGBoost writes it: invalid type: sequence"),
        (text(ONE), "{}".into(), "reply 2 of 2: the model has no \"learner\""),
        (text(ONE), dart, "reply 2 of 2: learner.gradient_booster has no \"model\": only models of the tree booster"),
        (text(ONE), few, "holds 1 trees, but num_trees says 2, tree_info 1 and iteration_indptr 1"),
        (text(ONE), odd, "gbtree_model_param.num_parallel_tree is \"many\" instead of a number of trees"),
        (text(ONE), no_tree, "reply 2 of 2: tree 0 is not as XGBoost writes it"),
        (String::new(), "\u{fffd}".into(), "reply 2 of 2: it is not JSON: expected value at line 1 column 1"),
    ] {
        let error = bagging(global.as_bytes(), &[OTHER.to_vec(), reply.into_bytes()]).unwrap_err();
        assert!(error.contains(expected), "{error}\n  instead of: {expected}");
    }
}
