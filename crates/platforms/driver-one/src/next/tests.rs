//! Stories of the next steps.

use trellis_one::keys::{TRELLIS_ASSIGNMENT, TRELLIS_PART};
use trellis_plan::{Order, Spec};

use super::*;
use crate::record::Target;
use crate::render::{SUPERLINK, SUPERNODE, labels, service_name, shape, state_disk_name};
use crate::testing;
use crate::view::{
    ContextSecrets, ImageState, ImageView, Life, Named, RoleView, ServiceTemplateView, ServiceView, TemplateView,
    VmView,
};

const LIMITS: Limits = Limits { stuck_ms: 1000, warning_ms: 20, faulty_ms: 200, silent_ms: 60_000 };
const RECOVERY: RetryBudget = RetryBudget { max_attempts: Some(2), min_delay_ms: 10, max_delay_ms: 10 };
const NODES: [&str; 3] = ["f/lab/node/cpu-0", "f/lab/node/cpu-1", "f/lab/node/cpu-2"];

/// A simulated cloud, limited to the effects that later steps depend on.
struct World {
    records: BTreeMap<ResourceId, Record>,
    view: View,
    history: History,
    elastic: BTreeMap<Name, PoolRules>,
    document: Option<Document>,
    now_ms: Millis,
    ids: u32,
}

impl World {
    fn new() -> World {
        let image = |id, name: &str| ImageView {
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
        let (records, history, elastic) = Default::default();
        World { records, view, history, elastic, document: None, now_ms: 0, ids: 100 }
    }

    fn want(&mut self, part: &str) {
        let record = Record::new(testing::desired(part), Order::default(), self.now_ms);
        self.records.insert(record.id.clone(), record);
    }

    fn delete(&mut self, part: &str) {
        self.records.get_mut(&testing::id(part)).expect("it exists").target = Target::Gone;
    }

    fn next(&mut self) -> Next {
        self.history.observe(&self.view, &LIMITS, self.now_ms);
        let settled = update_records(&self.records, &self.view, self.document.as_ref(), self.now_ms);
        self.records.extend(settled.changed.into_iter().map(|record| (record.id.clone(), record)));
        settled.gone.iter().for_each(|id| drop(self.records.remove(id)));
        next(&Situation {
            federation: &testing::name("f"),
            site: &testing::name("lab"),
            one: &testing::site(),
            records: &self.records,
            view: &self.view,
            history: &self.history,
            limits: &LIMITS,
            recovery: &RECOVERY,
            secrets: &Secrets::default(),
            trust: None,
            elastic: &self.elastic,
            document: self.document.as_ref(),
            now_ms: self.now_ms,
        })
    }

    /// Executes steps until there are none. Returns their descriptions.
    fn update_records(&mut self) -> Vec<String> {
        let mut done = Vec::new();
        for _ in 0..50 {
            let steps = self.next().steps;
            if steps.is_empty() {
                return done;
            }
            done.extend(steps.iter().map(Step::describe));
            steps.iter().for_each(|step| self.execute(step));
        }
        panic!("the steps do not converge: {done:?}");
    }

    fn id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    fn execute(&mut self, step: &Step) {
        self.history.executed(step, None, self.now_ms);
        let texts = |template: &Template| -> BTreeMap<String, String> {
            let keys = template.0.iter().map(|(key, _)| key);
            keys.filter_map(|key| Some((key.clone(), template.text(key)?.to_owned()))).collect()
        };
        match step {
            Step::CreateImage { template, .. } => {
                let (id, name) = (self.id(), template.text("NAME").expect("a name").to_owned());
                let attributes = texts(template);
                self.view.images.push(ImageView { id, name, state: ImageState::Usable, attributes });
            }
            Step::DeleteImage { image } => self.view.images.retain(|seen| seen.id != *image),
            Step::CreateTemplate { template } => {
                let id = self.id();
                let (attributes, secrets) = (texts(template), ContextSecrets::default());
                self.view.templates.push(TemplateView { id, attributes, secrets });
            }
            Step::UpdateTemplate { id, template } => {
                let seen = self.view.templates.iter_mut().find(|seen| seen.id == *id).expect("it exists");
                seen.attributes = texts(template);
            }
            Step::DeleteTemplate { id } => self.view.templates.retain(|seen| seen.id != *id),
            Step::CreateServiceTemplate { plan } => {
                let (id, description) = (self.id(), plan.description.clone());
                self.view.service_templates.push(ServiceTemplateView { id, description });
            }
            Step::UpdateServiceTemplate { plan, .. } => {
                self.view.service_templates[0].description = plan.description.clone();
            }
            Step::DeleteServiceTemplate { id } => self.view.service_templates.retain(|seen| seen.id != *id),
            Step::Instantiate { plan, .. } => {
                let id = self.id();
                let (state, state_name) = (ServiceState::Running, "RUNNING".to_owned());
                self.view.services.push(ServiceView { id, state, state_name, roles: Vec::new(), error: None });
                plan.roles.iter().for_each(|role| self.add_role(id, role));
            }
            Step::AddRole { service, role } => {
                let known = self.service(*service);
                assert!(role.parents.iter().all(|parent| known.role(parent).is_some()), "{role:?}");
                self.add_role(*service, role);
            }
            Step::Scale { service, role, cardinality } => {
                assert_eq!(self.service(*service).state, ServiceState::Running, "OneFlow scales only in this state");
                let has = self.role(*service, role).vms.len() as u32;
                assert!(*cardinality > has, "OneFlow never chooses a VM to remove");
                (has..*cardinality).for_each(|_| self.add_vm(*service, role));
            }
            Step::RecoverService { service } => {
                assert_ne!(self.service(*service).state, ServiceState::Warning, "OneFlow rejects it");
                self.set_service(ServiceState::Running, "RUNNING");
            }
            Step::DeleteService { service } | Step::RemoveService { service } => {
                let vms: Vec<u32> = self.service(*service).roles.iter().flat_map(|role| role.vms.clone()).collect();
                self.view.vms.retain(|vm| !vms.contains(&vm.id));
                self.view.services.retain(|seen| seen.id != *service);
            }
            Step::UpdateVm { vm, attributes } => {
                let seen = self.view.vms.iter_mut().find(|seen| seen.id == *vm).expect("it exists");
                seen.attributes.extend(attributes.clone());
            }
            Step::ActOnVm { vm, action } if action.name().starts_with("terminate") => self.lose(*vm),
            Step::ActOnVm { vm, .. } => {
                self.view.vms.iter_mut().find(|seen| seen.id == *vm).expect("it exists").life = Life::Running;
            }
        }
    }

    fn service(&mut self, id: u32) -> &mut ServiceView {
        self.view.services.iter_mut().find(|service| service.id == id).expect("it exists")
    }

    fn add_role(&mut self, service: u32, role: &RoleTemplate) {
        let seen = RoleView { name: role.name.clone(), cardinality: 0, vms: Vec::new() };
        self.service(service).roles.push(seen);
        (0..role.cardinality).for_each(|_| self.add_vm(service, &role.name));
    }

    fn add_vm(&mut self, service: u32, role: &str) {
        let id = self.id();
        let attributes = self.view.template(role).expect("it has a template").attributes.clone();
        self.view.vms.push(VmView { attributes, ..testing::vm(id, &[]) });
        let role = self.role(service, role);
        role.vms.push(id);
        role.cardinality += 1;
    }

    fn role(&mut self, service: u32, name: &str) -> &mut RoleView {
        let roles = &mut self.service(service).roles;
        roles.iter_mut().find(|role| role.name == name).expect("it exists")
    }

    /// Ends a VM, and lets OneFlow notice it.
    fn lose(&mut self, vm: u32) {
        self.view.vms.retain(|seen| seen.id != vm);
        for role in self.view.services.iter_mut().flat_map(|service| &mut service.roles) {
            role.vms.retain(|id| *id != vm);
            role.cardinality = role.vms.len() as u32;
        }
    }

    fn set_service(&mut self, state: ServiceState, state_name: &str) {
        self.view.services[0].state = state;
        self.view.services[0].state_name = state_name.to_owned();
    }

    fn vm_of(&self, part: &str) -> Option<u32> {
        self.view.marked(&testing::id(part)).next().map(|vm| vm.id)
    }

    fn running() -> World {
        let mut world = World::new();
        world.want("f/lab/coordinator");
        world.update_records();
        NODES.iter().for_each(|part| world.want(part));
        world.update_records();
        world
    }
}

#[test]
fn a_federation_is_created_step_by_step() {
    let mut world = World::new();
    world.want("f/lab/coordinator");
    let done = world.update_records();
    let expected = [
        "create image trellis-f-lab-state",
        "create VM template trellis-f-lab-superlink",
        "create service template trellis-f-lab",
        "create service trellis-f-lab",
        "update VM 105: TRELLIS_ASSIGNMENT, TRELLIS_PART",
    ];
    assert_eq!(done, expected);
    NODES.iter().for_each(|part| world.want(part));
    let done = world.update_records();
    assert!(done.contains(&"add role supernode to service 104".to_owned()), "{done:?}");
    let vms: Vec<Option<u32>> = NODES.iter().map(|part| world.vm_of(part)).collect();
    assert!(vms.iter().all(Option::is_some), "{vms:?}");
}

#[test]
fn oneflow_never_chooses_the_vm_to_remove() {
    let mut world = World::running();
    let (first, last) = (world.vm_of(NODES[0]), world.vm_of(NODES[2]));
    let gone = world.vm_of(NODES[1]).expect("a VM");
    world.delete(NODES[1]);
    assert_eq!(world.update_records(), [format!("terminate VM {gone}")]);
    assert_eq!((world.vm_of(NODES[0]), world.vm_of(NODES[2])), (first, last));
    assert!(!world.records.contains_key(&testing::id(NODES[1])));
}

#[test]
fn nothing_is_ended_or_scaled_while_the_service_is_about_something() {
    let mut world = World::running();
    world.delete(NODES[0]);
    world.want("f/lab/node/cpu-3");
    world.set_service(ServiceState::Changing, "SCALING");
    assert_eq!(world.next().steps, []);
    // The service is stuck.
    world.now_ms += LIMITS.stuck_ms;
    let service = world.view.services[0].id;
    assert!(world.next().steps.contains(&Step::RecoverService { service }));
}

#[test]
fn a_failed_service_is_recovered_a_limited_number_of_times() {
    let mut world = World::running();
    let service = world.view.services[0].id;
    let recover = Step::RecoverService { service };
    for _ in 0..RECOVERY.max_attempts.unwrap_or_default() {
        world.set_service(ServiceState::Failed, "FAILED_SCALING");
        assert_eq!(world.next().steps, std::slice::from_ref(&recover));
        // A recovery failed again.
        world.history.executed(&recover, None, world.now_ms);
        assert_eq!(world.next().steps, []);
        world.now_ms += RECOVERY.min_delay_ms;
    }
    let next = world.next();
    assert_eq!(next.steps, []);
    assert!(next.exhausted.is_some_and(|why| why.contains("FAILED_SCALING")));
}

#[test]
fn a_vanished_vm_is_not_recreated_without_an_order() {
    let mut world = World::running();
    let vm = world.vm_of(NODES[0]).expect("a VM");
    world.lose(vm);
    assert_eq!(world.update_records(), Vec::<String>::new());
    let record = world.records.get_mut(&testing::id(NODES[0])).expect("it exists");
    record.abandoned.extend(record.vm.take());
    let done = world.update_records();
    assert!(done[0].starts_with("scale role supernode"), "{done:?}");
    assert!(world.vm_of(NODES[0]).is_some());
}

/// A faulty VM was terminated: its service stays in WARNING and accepts no requests.
fn warned() -> World {
    let mut world = World::running();
    let vm = world.vm_of(NODES[0]).expect("a VM");
    world.lose(vm);
    world.set_service(ServiceState::Warning, "WARNING");
    let record = world.records.get_mut(&testing::id(NODES[0])).expect("it exists");
    record.abandoned.extend(record.vm.take());
    world
}

#[test]
fn beside_a_service_that_takes_no_orders_another_makes_what_is_missing() {
    let mut world = warned();
    let others: Vec<Option<u32>> = NODES[1..].iter().map(|part| world.vm_of(part)).collect();
    let coordinator = world.vm_of("f/lab/coordinator");
    assert_eq!(world.next().steps, [], "OneFlow may recover by itself");
    world.now_ms += LIMITS.warning_ms;
    let done = world.update_records();
    assert_eq!(done[0], "create service trellis-f-lab", "{done:?}");
    assert!(world.vm_of(NODES[0]).is_some());
    let after: Vec<Option<u32>> = NODES[1..].iter().map(|part| world.vm_of(part)).collect();
    assert_eq!((after, world.vm_of("f/lab/coordinator")), (others, coordinator), "no VM was changed");
    assert_eq!((world.view.services.len(), world.view.vms.len()), (2, 4));
    // The first service is deleted with its last VM, not earlier.
    for part in NODES[1..].iter().chain(&["f/lab/coordinator"]) {
        assert_eq!(world.view.services.len(), 2);
        world.lose(world.vm_of(part).expect("a VM"));
        let record = world.records.get_mut(&testing::id(part)).expect("it exists");
        record.abandoned.extend(record.vm.take());
        world.update_records();
    }
    assert_eq!((world.view.services.len(), world.view.vms.len()), (1, 4));
}

#[test]
fn a_recovered_service_gets_the_next_vms() {
    let mut world = warned();
    world.next();
    world.now_ms += LIMITS.warning_ms;
    world.update_records();
    assert_eq!(world.view.services.len(), 2);
    world.set_service(ServiceState::Running, "RUNNING");
    world.want("f/lab/node/cpu-3");
    let first = world.view.services[0].id;
    let done = world.update_records();
    assert_eq!(done[0], format!("scale role supernode of service {first} to 3"), "{done:?}");
}

#[test]
fn the_number_of_services_is_limited() {
    let mut world = warned();
    world.now_ms += LIMITS.warning_ms;
    let service = world.view.services[0].clone();
    world.view.services = (0..8).map(|number| ServiceView { id: service.id + number, ..service.clone() }).collect();
    world.next();
    world.now_ms += LIMITS.warning_ms;
    let next = world.next();
    assert!(!next.steps.iter().any(|step| matches!(step, Step::Instantiate { .. })), "{:?}", next.steps);
    assert!(next.blockers[0].contains("WARNING"), "{:?}", next.blockers);
}

#[test]
fn found_vms_are_kept_until_the_document_is_known() {
    let mut world = World::running();
    let before = world.view.clone();
    world.records.clear();
    assert_eq!(world.update_records(), Vec::<String>::new(), "the desired state is unknown");
    let parts = ["f/lab/coordinator", NODES[0], NODES[1], NODES[2], "f/lab/node/cpu-3"];
    world.document = Some(parts.map(|part| (testing::id(part), testing::desired(part))).into());
    assert_eq!(world.update_records(), Vec::<String>::new(), "the desired state is reached");
    assert_eq!(world.view, before);
    assert!(world.records.values().all(|record| record.desired.is_some()));
    // A new node goes into the existing role, beside the existing coordinator.
    world.want("f/lab/node/cpu-3");
    let done = world.update_records();
    assert!(done[0].starts_with("scale role supernode") && done[0].ends_with("to 4"), "{done:?}");
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
    let agent_state = crate::record::AgentState::default();
    let turn = |spec| {
        let verb = trellis_plan::Verb::Replace(trellis_plan::Desired::new(record.id.clone(), Spec::Node(spec)));
        let action = trellis_plan::Action { order: Order { fence: 1, serial: 1 }, verb };
        record.apply(&action, &agent_state, 5).expect("an accepted order").record.vm
    };
    assert_eq!(turn(spec.clone()), record.vm);
    spec.resources.cpu_millis = Some(8000);
    assert_eq!(turn(spec), None, "another size requires another VM");
}

#[test]
fn a_token_that_the_superlink_does_not_know_is_replaced_once() {
    let mut world = World::running();
    let id = testing::id(NODES[0]);
    let vm = world.vm_of(NODES[0]).expect("a VM");
    world.records.get_mut(&id).expect("it exists").join_token = Some("used".to_owned());
    let mark = trellis_one::keys::token_mark("used", &id.part.name());
    let error = format!("join_refused: {mark} The join token is not valid.");
    let seen = world.view.vms.iter_mut().find(|seen| seen.id == vm).expect("it exists");
    seen.attributes.insert("FL_ERROR".to_owned(), error);
    world.next();
    assert_eq!(world.records[&id].join_token, None);
    // The agent's error about the old token does not apply to the new one.
    world.records.get_mut(&id).expect("it exists").join_token = Some("new".to_owned());
    world.next();
    assert_eq!(world.records[&id].join_token.as_deref(), Some("new"));
}

#[test]
fn oneflow_may_take_a_vm_and_the_node_that_leaves_gives_its_own() {
    let mut world = World::running();
    let rules = PoolRules { min: 1, max: 5, cooldown_s: 1, rules: Vec::new() };
    world.elastic.insert(testing::name("cpu"), rules);
    world.update_records();
    let (oldest, last) = (world.vm_of(NODES[0]).expect("a VM"), world.vm_of(NODES[2]).expect("a VM"));
    world.lose(oldest);
    // The planner removes a node and restarts the one without a VM.
    world.delete(NODES[2]);
    world.records.get_mut(&testing::id(NODES[0])).expect("it exists").vm = None;
    world.update_records();
    assert_eq!(world.vm_of(NODES[0]), Some(last), "no VM was terminated or created");
    assert_eq!(world.view.vms.len(), 3);
    assert!(!world.records.contains_key(&testing::id(NODES[2])));
}

#[test]
fn a_reassigned_node_exists_until_its_vm_switches() {
    let mut world = World::running();
    let rules = PoolRules { min: 1, max: 5, cooldown_s: 1, rules: Vec::new() };
    world.elastic.insert(testing::name("cpu"), rules);
    let (oldest, last) = (world.vm_of(NODES[0]).expect("a VM"), world.vm_of(NODES[2]).expect("a VM"));
    let works_as = |world: &mut World, part: &str| {
        let generation = testing::desired(part).generation.to_string();
        let vm = world.view.vms.iter_mut().find(|vm| vm.id == last).expect("it exists");
        vm.attributes.insert("TRELLIS_GENERATION".to_owned(), generation);
    };
    works_as(&mut world, NODES[2]);
    world.lose(oldest);
    world.delete(NODES[2]);
    world.records.get_mut(&testing::id(NODES[0])).expect("it exists").vm = None;
    world.update_records();
    assert_eq!(world.vm_of(NODES[0]), Some(last));
    assert!(world.records.contains_key(&testing::id(NODES[2])), "its shard is still in use");
    works_as(&mut world, NODES[0]);
    world.update_records();
    assert!(!world.records.contains_key(&testing::id(NODES[2])));
    assert_eq!(world.view.vms.len(), 3, "no VM was terminated");
}

#[test]
fn marked_vms_without_a_record_are_adopted() {
    let mut world = World::running();
    world.records.clear();
    world.next();
    let ids: Vec<String> = world.records.keys().map(ToString::to_string).collect();
    assert_eq!(ids, ["f/lab/coordinator", NODES[0], NODES[1], NODES[2]]);
    let generation = testing::desired(NODES[1]).generation;
    assert_eq!(world.records[&testing::id(NODES[1])].generation(), Some(generation));
}

#[test]
fn everything_is_deleted_without_desired_parts() {
    let mut world = World::running();
    ["f/lab/coordinator"].iter().chain(&NODES).for_each(|part| world.delete(part));
    world.update_records();
    world.next();
    assert!(world.records.is_empty(), "{:?}", world.records);
    assert!(world.view.is_empty());
    let names: Vec<&str> = world.view.images.iter().map(|image| image.name.as_str()).collect();
    assert_eq!(names, ["trellis-superlink", "trellis-supernode"], "only objects of others are left");
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
    let turn = record.apply(&action, &crate::record::AgentState::default(), 5).expect("an accepted order");
    world.records.insert(turn.record.id.clone(), turn.record);
    let done = world.update_records();
    assert!(!done.iter().any(|step| step.contains("delete image")), "{done:?}");
    let disk = state_disk_name(&testing::name("f"), &testing::name("lab"));
    assert!(world.view.images.iter().any(|image| image.name == disk));
    let superlinks = world.view.vms.iter().filter(|vm| vm.role() == Some(SUPERLINK)).count();
    assert_eq!(superlinks, 1);
}

#[test]
fn secrets_are_in_no_attribute_and_pools_have_roles_of_their_own() {
    let mut world = World::running();
    world.want("f/lab/node/gpu-0");
    world.update_records();
    let gpu = world.view.marked(&testing::id("f/lab/node/gpu-0")).next().expect("a VM").clone();
    assert_eq!(gpu.role(), Some("supernode_gpu"));
    let cpu = world.view.marked(&testing::id(NODES[0])).next().expect("a VM");
    assert_eq!((cpu.role(), cpu.attribute(labels::POOL)), (Some(SUPERNODE), Some("cpu")));
    assert_eq!(cpu.attribute(TRELLIS_PART), Some(NODES[0]));
    assert!(cpu.attribute(TRELLIS_ASSIGNMENT).is_some());
    assert_eq!(service_name(&testing::name("f"), &testing::name("lab")), "trellis-f-lab");
}
