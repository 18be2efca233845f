//! Stories of what is next.

use trellis_one::keys::{TRELLIS_ASSIGNMENT, TRELLIS_PART};
use trellis_plan::{Order, Spec};

use super::*;
use crate::record::Wish;
use crate::render::{SUPERLINK, SUPERNODE, labels, service_name, shape, state_disk_name};
use crate::testing;
use crate::view::{
    ContextSecrets, ImageSeen, ImageState, Life, Named, RoleSeen, ServiceSeen, ServiceTemplateSeen, TemplateSeen,
    VmSeen,
};

const LIMITS: Limits =
    Limits { stuck_ms: 1000, warning_ms: 20, faulty_ms: 200, pause_ms: 10, silent_ms: 60_000, most_recoveries: 2 };
const NODES: [&str; 3] = ["f/lab/node/cpu-0", "f/lab/node/cpu-1", "f/lab/node/cpu-2"];

/// A cloud in which steps have effects, as far as the next steps depend on them.
struct World {
    records: BTreeMap<ResourceId, Record>,
    view: View,
    memory: Memory,
    elastic: BTreeMap<Name, PoolRules>,
    heard: Option<Heard>,
    now_ms: Millis,
    ids: u32,
}

impl World {
    fn new() -> World {
        let image = |id, name: &str| ImageSeen {
            id,
            name: name.to_owned(),
            state: ImageState::Usable,
            attributes: BTreeMap::new(),
        };
        let view = View {
            images: vec![image(1, "trellis-superlink"), image(2, "trellis-supernode")],
            networks: vec![Named { id: 7, name: "private".to_owned() }],
            ..View::default()
        };
        let (records, memory, elastic) = Default::default();
        World { records, view, memory, elastic, heard: None, now_ms: 0, ids: 100 }
    }

    fn want(&mut self, part: &str) {
        let record = Record::new(testing::desired(part), Order::default(), self.now_ms);
        self.records.insert(record.id.clone(), record);
    }

    fn unwant(&mut self, part: &str) {
        self.records.get_mut(&testing::id(part)).expect("it is there").wish = Wish::Gone;
    }

    fn next(&mut self) -> Next {
        self.memory.look(&self.view, &LIMITS, self.now_ms);
        let settled = settle(&self.records, &self.view, self.heard.as_ref(), self.now_ms);
        self.records.extend(settled.changed.into_iter().map(|record| (record.id.clone(), record)));
        settled.gone.iter().for_each(|id| drop(self.records.remove(id)));
        next(&Ground {
            federation: &testing::name("f"),
            site: &testing::name("lab"),
            one: &testing::site(),
            records: &self.records,
            view: &self.view,
            memory: &self.memory,
            limits: &LIMITS,
            secrets: &Secrets::default(),
            trust: None,
            elastic: &self.elastic,
            heard: self.heard.as_ref(),
            now_ms: self.now_ms,
        })
    }

    /// Until nothing is next. What was done, in words.
    fn settle(&mut self) -> Vec<String> {
        let mut done = Vec::new();
        for _ in 0..50 {
            let steps = self.next().steps;
            if steps.is_empty() {
                return done;
            }
            done.extend(steps.iter().map(Step::word));
            steps.iter().for_each(|step| self.carry_out(step));
        }
        panic!("it does not come to rest: {done:?}");
    }

    fn id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    fn carry_out(&mut self, step: &Step) {
        self.memory.tried(step, None, self.now_ms);
        let texts = |template: &Template| -> BTreeMap<String, String> {
            let keys = template.0.iter().map(|(key, _)| key);
            keys.filter_map(|key| Some((key.clone(), template.text(key)?.to_owned()))).collect()
        };
        match step {
            Step::MakeImage { template, .. } => {
                let (id, name) = (self.id(), template.text("NAME").expect("a name").to_owned());
                let attributes = texts(template);
                self.view.images.push(ImageSeen { id, name, state: ImageState::Usable, attributes });
            }
            Step::DeleteImage { image } => self.view.images.retain(|seen| seen.id != *image),
            Step::MakeTemplate { template } => {
                let id = self.id();
                let (attributes, secrets) = (texts(template), ContextSecrets::default());
                self.view.templates.push(TemplateSeen { id, attributes, secrets });
            }
            Step::UpdateTemplate { id, template } => {
                let seen = self.view.templates.iter_mut().find(|seen| seen.id == *id).expect("it is there");
                seen.attributes = texts(template);
            }
            Step::DeleteTemplate { id } => self.view.templates.retain(|seen| seen.id != *id),
            Step::MakeServiceTemplate { plan } => {
                let (id, description) = (self.id(), plan.description.clone());
                self.view.service_templates.push(ServiceTemplateSeen { id, description });
            }
            Step::UpdateServiceTemplate { plan, .. } => {
                self.view.service_templates[0].description = plan.description.clone();
            }
            Step::DeleteServiceTemplate { id } => self.view.service_templates.retain(|seen| seen.id != *id),
            Step::Instantiate { plan, .. } => {
                let id = self.id();
                let (state, word) = (ServiceState::Runs, "RUNNING".to_owned());
                self.view.services.push(ServiceSeen { id, state, word, roles: Vec::new(), error: None });
                plan.roles.iter().for_each(|role| self.add_role(id, role));
            }
            Step::AddRole { service, role } => {
                let known = self.service(*service);
                assert!(role.parents.iter().all(|parent| known.role(parent).is_some()), "{role:?}");
                self.add_role(*service, role);
            }
            Step::Scale { service, role, cardinality } => {
                assert_eq!(self.service(*service).state, ServiceState::Runs, "OneFlow scales in no other state");
                let has = self.role(*service, role).vms.len() as u32;
                assert!(*cardinality > has, "OneFlow never chooses who goes");
                (has..*cardinality).for_each(|_| self.add_vm(*service, role));
            }
            Step::RecoverService { service } => {
                assert_ne!(self.service(*service).state, ServiceState::Warns, "OneFlow refuses it");
                self.set_service(ServiceState::Runs, "RUNNING");
            }
            Step::DeleteService { service } | Step::RemoveService { service } => {
                let vms: Vec<u32> = self.service(*service).roles.iter().flat_map(|role| role.vms.clone()).collect();
                self.view.vms.retain(|vm| !vms.contains(&vm.id));
                self.view.services.retain(|seen| seen.id != *service);
            }
            Step::Tell { vm, attributes } => {
                let seen = self.view.vms.iter_mut().find(|seen| seen.id == *vm).expect("it is there");
                seen.attributes.extend(attributes.clone());
            }
            Step::Act { vm, action } if action.name().starts_with("terminate") => self.lose(*vm),
            Step::Act { vm, .. } => {
                self.view.vms.iter_mut().find(|seen| seen.id == *vm).expect("it is there").life = Life::Runs;
            }
        }
    }

    fn service(&mut self, id: u32) -> &mut ServiceSeen {
        self.view.services.iter_mut().find(|service| service.id == id).expect("it is there")
    }

    fn add_role(&mut self, service: u32, role: &RoleTemplate) {
        let seen = RoleSeen { name: role.name.clone(), cardinality: 0, vms: Vec::new() };
        self.service(service).roles.push(seen);
        (0..role.cardinality).for_each(|_| self.add_vm(service, &role.name));
    }

    fn add_vm(&mut self, service: u32, role: &str) {
        let id = self.id();
        let attributes = self.view.template(role).expect("it has a template").attributes.clone();
        self.view.vms.push(VmSeen { attributes, ..testing::vm(id, &[]) });
        let role = self.role(service, role);
        role.vms.push(id);
        role.cardinality += 1;
    }

    fn role(&mut self, service: u32, name: &str) -> &mut RoleSeen {
        let roles = &mut self.service(service).roles;
        roles.iter_mut().find(|role| role.name == name).expect("it is there")
    }

    /// A VM ends, and OneFlow notices.
    fn lose(&mut self, vm: u32) {
        self.view.vms.retain(|seen| seen.id != vm);
        for role in self.view.services.iter_mut().flat_map(|service| &mut service.roles) {
            role.vms.retain(|id| *id != vm);
            role.cardinality = role.vms.len() as u32;
        }
    }

    fn set_service(&mut self, state: ServiceState, word: &str) {
        self.view.services[0].state = state;
        self.view.services[0].word = word.to_owned();
    }

    fn vm_of(&self, part: &str) -> Option<u32> {
        self.view.marked(&testing::id(part)).next().map(|vm| vm.id)
    }

    fn running() -> World {
        let mut world = World::new();
        world.want("f/lab/coordinator");
        world.settle();
        NODES.iter().for_each(|part| world.want(part));
        world.settle();
        world
    }
}

#[test]
fn a_federation_comes_to_be_step_by_step() {
    let mut world = World::new();
    world.want("f/lab/coordinator");
    let done = world.settle();
    let expected = [
        "makes image trellis-f-lab-state",
        "makes VM template trellis-f-lab-superlink",
        "makes service template trellis-f-lab",
        "makes service trellis-f-lab",
        "tells VM 105 its TRELLIS_ASSIGNMENT, TRELLIS_PART",
    ];
    assert_eq!(done, expected);
    NODES.iter().for_each(|part| world.want(part));
    let done = world.settle();
    assert!(done.contains(&"adds role supernode to service 104".to_owned()), "{done:?}");
    let vms: Vec<Option<u32>> = NODES.iter().map(|part| world.vm_of(part)).collect();
    assert!(vms.iter().all(Option::is_some), "{vms:?}");
}

#[test]
fn who_goes_is_never_left_to_oneflow() {
    let mut world = World::running();
    let (first, last) = (world.vm_of(NODES[0]), world.vm_of(NODES[2]));
    let gone = world.vm_of(NODES[1]).expect("it has a VM");
    world.unwant(NODES[1]);
    assert_eq!(world.settle(), [format!("terminate of VM {gone}")]);
    assert_eq!((world.vm_of(NODES[0]), world.vm_of(NODES[2])), (first, last));
    assert!(!world.records.contains_key(&testing::id(NODES[1])));
}

#[test]
fn nothing_is_ended_or_scaled_while_the_service_is_about_something() {
    let mut world = World::running();
    world.unwant(NODES[0]);
    world.want("f/lab/node/cpu-3");
    world.set_service(ServiceState::Turns, "SCALING");
    assert_eq!(world.next().steps, []);
    // It is stuck.
    world.now_ms += LIMITS.stuck_ms;
    let service = world.view.services[0].id;
    assert!(world.next().steps.contains(&Step::RecoverService { service }));
}

#[test]
fn a_service_that_gave_up_is_brought_back_a_few_times_and_then_told() {
    let mut world = World::running();
    let service = world.view.services[0].id;
    let recover = Step::RecoverService { service };
    for _ in 0..LIMITS.most_recoveries {
        world.set_service(ServiceState::Failed, "FAILED_SCALING");
        assert_eq!(world.next().steps, std::slice::from_ref(&recover));
        // It was told, and gave up again.
        world.memory.tried(&recover, None, world.now_ms);
        assert_eq!(world.next().steps, []);
        world.now_ms += LIMITS.pause_ms;
    }
    let next = world.next();
    assert_eq!(next.steps, []);
    assert!(next.gave_up.is_some_and(|why| why.contains("FAILED_SCALING")));
}

#[test]
fn a_vm_that_vanished_is_not_made_again_by_itself() {
    let mut world = World::running();
    let vm = world.vm_of(NODES[0]).expect("it has a VM");
    world.lose(vm);
    assert_eq!(world.settle(), Vec::<String>::new());
    let record = world.records.get_mut(&testing::id(NODES[0])).expect("it is there");
    record.abandoned.extend(record.vm.take());
    let done = world.settle();
    assert!(done[0].starts_with("scales role supernode"), "{done:?}");
    assert!(world.vm_of(NODES[0]).is_some());
}

/// A faulty VM was terminated: its service stays in WARNING and accepts no requests.
fn warned() -> World {
    let mut world = World::running();
    let vm = world.vm_of(NODES[0]).expect("it has a VM");
    world.lose(vm);
    world.set_service(ServiceState::Warns, "WARNING");
    let record = world.records.get_mut(&testing::id(NODES[0])).expect("it is there");
    record.abandoned.extend(record.vm.take());
    world
}

#[test]
fn beside_a_service_that_takes_no_orders_another_makes_what_is_missing() {
    let mut world = warned();
    let others: Vec<Option<u32>> = NODES[1..].iter().map(|part| world.vm_of(part)).collect();
    let coordinator = world.vm_of("f/lab/coordinator");
    assert_eq!(world.next().steps, [], "it may notice by itself that all is well");
    world.now_ms += LIMITS.warning_ms;
    let done = world.settle();
    assert_eq!(done[0], "makes service trellis-f-lab", "{done:?}");
    assert!(world.vm_of(NODES[0]).is_some());
    let after: Vec<Option<u32>> = NODES[1..].iter().map(|part| world.vm_of(part)).collect();
    assert_eq!((after, world.vm_of("f/lab/coordinator")), (others, coordinator), "no VM was touched");
    assert_eq!((world.view.services.len(), world.view.vms.len()), (2, 4));
    // The first service is deleted with its last VM, not earlier.
    for part in NODES[1..].iter().chain(&["f/lab/coordinator"]) {
        assert_eq!(world.view.services.len(), 2);
        world.lose(world.vm_of(part).expect("it has a VM"));
        let record = world.records.get_mut(&testing::id(part)).expect("it is there");
        record.abandoned.extend(record.vm.take());
        world.settle();
    }
    assert_eq!((world.view.services.len(), world.view.vms.len()), (1, 4));
}

#[test]
fn a_service_that_takes_orders_again_is_used_before_others() {
    let mut world = warned();
    world.next();
    world.now_ms += LIMITS.warning_ms;
    world.settle();
    assert_eq!(world.view.services.len(), 2);
    world.set_service(ServiceState::Runs, "RUNNING");
    world.want("f/lab/node/cpu-3");
    let first = world.view.services[0].id;
    let done = world.settle();
    assert_eq!(done[0], format!("scales role supernode of service {first} to 3"), "{done:?}");
}

#[test]
fn services_are_not_made_without_end() {
    let mut world = warned();
    world.now_ms += LIMITS.warning_ms;
    let service = world.view.services[0].clone();
    world.view.services = (0..8).map(|number| ServiceSeen { id: service.id + number, ..service.clone() }).collect();
    world.next();
    world.now_ms += LIMITS.warning_ms;
    let next = world.next();
    assert!(!next.steps.iter().any(|step| matches!(step, Step::Instantiate { .. })), "{:?}", next.steps);
    assert!(next.troubles[0].contains("WARNING"), "{:?}", next.troubles);
}

#[test]
fn found_vms_are_left_alone_until_the_document_is_heard_and_then_kept() {
    let mut world = World::running();
    let before = world.view.clone();
    world.records.clear();
    assert_eq!(world.settle(), Vec::<String>::new(), "nobody has said what is wanted");
    let parts = ["f/lab/coordinator", NODES[0], NODES[1], NODES[2], "f/lab/node/cpu-3"];
    world.heard = Some(parts.map(|part| (testing::id(part), testing::desired(part))).into());
    assert_eq!(world.settle(), Vec::<String>::new(), "it is as it is wanted");
    assert_eq!(world.view, before);
    assert!(world.records.values().all(|record| record.desired.is_some()));
    // A new node goes into the existing role, beside the existing coordinator.
    world.want("f/lab/node/cpu-3");
    let done = world.settle();
    assert!(done[0].starts_with("scales role supernode") && done[0].ends_with("to 4"), "{done:?}");
    let kept: Vec<u32> = world.view.vms.iter().map(|vm| vm.id).take(before.vms.len()).collect();
    assert_eq!(kept, before.vms.iter().map(|vm| vm.id).collect::<Vec<u32>>());
}

#[test]
fn what_was_found_is_changed_in_its_own_vm_where_that_can_hold_it() {
    let mut world = World::running();
    world.records.clear();
    world.next();
    let record = &world.records[&testing::id(NODES[0])];
    let Spec::Node(mut spec) = testing::desired(NODES[0]).spec else { panic!("a node") };
    spec.json_logs = !spec.json_logs;
    let told = crate::record::Told::default();
    let turn = |spec| {
        let verb = trellis_plan::Verb::Replace(trellis_plan::Desired::new(record.id.clone(), Spec::Node(spec)));
        let action = trellis_plan::Action { order: Order { fence: 1, serial: 1 }, verb };
        record.apply(&action, &told, 5).expect("it is taken").record.vm
    };
    assert_eq!(turn(spec.clone()), record.vm);
    spec.resources.cpu_millis = Some(8000);
    assert_eq!(turn(spec), None, "another size is another VM");
}

#[test]
fn a_token_that_the_superlink_does_not_know_is_replaced_once() {
    let mut world = World::running();
    let id = testing::id(NODES[0]);
    let vm = world.vm_of(NODES[0]).expect("it has a VM");
    world.records.get_mut(&id).expect("it is there").join_token = Some("used".to_owned());
    let mark = trellis_one::keys::token_mark("used", &id.part.name());
    let error = format!("join_refused: {mark} The join token is not valid.");
    let seen = world.view.vms.iter_mut().find(|seen| seen.id == vm).expect("it is there");
    seen.attributes.insert("FL_ERROR".to_owned(), error);
    world.next();
    assert_eq!(world.records[&id].join_token, None);
    // The agent's error about the old token does not apply to the new one.
    world.records.get_mut(&id).expect("it is there").join_token = Some("new".to_owned());
    world.next();
    assert_eq!(world.records[&id].join_token.as_deref(), Some("new"));
}

#[test]
fn oneflow_may_take_a_vm_and_the_node_that_leaves_gives_its_own() {
    let mut world = World::running();
    let rules = PoolRules { min: 1, max: 5, cooldown_s: 1, rules: Vec::new() };
    world.elastic.insert(testing::name("cpu"), rules);
    world.settle();
    let (oldest, last) = (world.vm_of(NODES[0]).expect("a VM"), world.vm_of(NODES[2]).expect("a VM"));
    world.lose(oldest);
    // The planner follows: one node less, and the one without a VM is started again.
    world.unwant(NODES[2]);
    world.records.get_mut(&testing::id(NODES[0])).expect("it is there").vm = None;
    world.settle();
    assert_eq!(world.vm_of(NODES[0]), Some(last), "no VM was ended or made");
    assert_eq!(world.view.vms.len(), 3);
    assert!(!world.records.contains_key(&testing::id(NODES[2])));
}

#[test]
fn a_node_whose_vm_was_given_away_is_there_until_the_vm_has_taken_that_in() {
    let mut world = World::running();
    let rules = PoolRules { min: 1, max: 5, cooldown_s: 1, rules: Vec::new() };
    world.elastic.insert(testing::name("cpu"), rules);
    let (oldest, last) = (world.vm_of(NODES[0]).expect("a VM"), world.vm_of(NODES[2]).expect("a VM"));
    let works_as = |world: &mut World, part: &str| {
        let generation = testing::desired(part).generation.to_string();
        let vm = world.view.vms.iter_mut().find(|vm| vm.id == last).expect("it is there");
        vm.attributes.insert("TRELLIS_GENERATION".to_owned(), generation);
    };
    works_as(&mut world, NODES[2]);
    world.lose(oldest);
    world.unwant(NODES[2]);
    world.records.get_mut(&testing::id(NODES[0])).expect("it is there").vm = None;
    world.settle();
    assert_eq!(world.vm_of(NODES[0]), Some(last));
    assert!(world.records.contains_key(&testing::id(NODES[2])), "its shard is still at work");
    works_as(&mut world, NODES[0]);
    world.settle();
    assert!(!world.records.contains_key(&testing::id(NODES[2])));
    assert_eq!(world.view.vms.len(), 3, "no VM was ended");
}

#[test]
fn marks_that_nobody_remembers_are_taken_up() {
    let mut world = World::running();
    world.records.clear();
    world.next();
    let ids: Vec<String> = world.records.keys().map(ToString::to_string).collect();
    assert_eq!(ids, ["f/lab/coordinator", NODES[0], NODES[1], NODES[2]]);
    let generation = testing::desired(NODES[1]).generation;
    assert_eq!(world.records[&testing::id(NODES[1])].generation(), Some(generation));
}

#[test]
fn nothing_is_left_when_nothing_is_wanted() {
    let mut world = World::running();
    ["f/lab/coordinator"].iter().chain(&NODES).for_each(|part| world.unwant(part));
    world.settle();
    world.next();
    assert!(world.records.is_empty(), "{:?}", world.records);
    assert!(world.view.is_empty());
    let names: Vec<&str> = world.view.images.iter().map(|image| image.name.as_str()).collect();
    assert_eq!(names, ["trellis-superlink", "trellis-supernode"], "only what others made is left");
}

#[test]
fn the_state_outlives_the_vm_of_the_coordinator() {
    let mut world = World::running();
    let record = &world.records[&testing::id("f/lab/coordinator")];
    let mut spec = testing::coordinator();
    spec.resources.cpu_millis = Some(8000);
    let larger = trellis_plan::Desired::new(record.id.clone(), Spec::Coordinator(spec));
    assert_ne!(shape(&larger.spec), shape(&record.desired.as_ref().expect("it is wanted").spec));
    let verb = trellis_plan::Verb::Replace(larger);
    let action = trellis_plan::Action { order: Order { fence: 1, serial: 1 }, verb };
    let turn = record.apply(&action, &crate::record::Told::default(), 5).expect("it is taken");
    world.records.insert(turn.record.id.clone(), turn.record);
    let done = world.settle();
    assert!(!done.iter().any(|step| step.contains("deletes image")), "{done:?}");
    let disk = state_disk_name(&testing::name("f"), &testing::name("lab"));
    assert!(world.view.images.iter().any(|image| image.name == disk));
    let superlinks = world.view.vms.iter().filter(|vm| vm.role() == Some(SUPERLINK)).count();
    assert_eq!(superlinks, 1);
}

#[test]
fn secrets_are_in_no_attribute_and_pools_have_roles_of_their_own() {
    let mut world = World::running();
    world.want("f/lab/node/gpu-0");
    world.settle();
    let gpu = world.view.marked(&testing::id("f/lab/node/gpu-0")).next().expect("it has a VM").clone();
    assert_eq!(gpu.role(), Some("supernode_gpu"));
    let cpu = world.view.marked(&testing::id(NODES[0])).next().expect("it has a VM");
    assert_eq!((cpu.role(), cpu.attribute(labels::POOL)), (Some(SUPERNODE), Some("cpu")));
    assert_eq!(cpu.attribute(TRELLIS_PART), Some(NODES[0]));
    assert!(cpu.attribute(TRELLIS_ASSIGNMENT).is_some());
    assert_eq!(service_name(&testing::name("f"), &testing::name("lab")), "trellis-f-lab");
}
