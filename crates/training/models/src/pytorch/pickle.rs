//! The pickle of a state dict: an ordered dict of tensors, in the opcodes of protocol 2 that `weights_only` accepts.

use trellis_wire::records::Dtype;

use crate::safetensors::Tensor;

const PROTOCOL_2: &[u8] = b"\x80\x02";
const STOP: u8 = b'.';
const MARK: u8 = b'(';
const GLOBAL: u8 = b'c';
const REDUCE: u8 = b'R';
const EMPTY_TUPLE: u8 = b')';
const TUPLE: u8 = b't';
const SET_ITEMS: u8 = b'u';
const UNICODE: u8 = b'X';
const INT: u8 = b'J';
const LONG: u8 = 0x8a;
const FALSE: u8 = 0x89;
const PERSISTENT_ID: u8 = b'Q';

pub fn state_dict(tensors: &[Tensor<'_>]) -> Vec<u8> {
    let mut pickle = Pickle(PROTOCOL_2.to_vec());
    pickle.empty_ordered_dict();
    pickle.word(MARK);
    for (index, tensor) in tensors.iter().enumerate() {
        pickle.text(&tensor.name);
        pickle.tensor(tensor, index);
    }
    pickle.word(SET_ITEMS);
    pickle.word(STOP);
    pickle.0
}

struct Pickle(Vec<u8>);

impl Pickle {
    fn word(&mut self, word: u8) {
        self.0.push(word);
    }

    fn global(&mut self, module: &str, name: &str) {
        self.word(GLOBAL);
        self.0.extend_from_slice(format!("{module}\n{name}\n").as_bytes());
    }

    fn text(&mut self, text: &str) {
        self.word(UNICODE);
        let length = u32::try_from(text.len()).expect("names are shorter than 4 GiB");
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn int(&mut self, number: usize) {
        match i32::try_from(number) {
            Ok(small) => {
                self.word(INT);
                self.0.extend_from_slice(&small.to_le_bytes());
            }
            Err(_) => {
                self.word(LONG);
                self.word(8);
                // A signed number; no array has enough elements to set the sign bit.
                self.0.extend_from_slice(&(number as u64).to_le_bytes());
            }
        }
    }

    fn ints(&mut self, numbers: &[usize]) {
        self.word(MARK);
        numbers.iter().for_each(|number| self.int(*number));
        self.word(TUPLE);
    }

    fn empty_ordered_dict(&mut self) {
        self.global("collections", "OrderedDict");
        self.word(EMPTY_TUPLE);
        self.word(REDUCE);
    }

    /// A call of the function that builds a tensor from a storage.
    fn tensor(&mut self, tensor: &Tensor<'_>, storage: usize) {
        let kind = Kind::of(tensor.dtype);
        self.global("torch._utils", kind.maker());
        self.word(MARK);
        self.storage(&kind, tensor, storage);
        self.int(0);
        self.ints(tensor.shape);
        self.ints(&strides(tensor.shape));
        // requires_grad and backward_hooks.
        self.word(FALSE);
        self.empty_ordered_dict();
        if let Kind::Untyped(dtype) = kind {
            self.global("torch", dtype);
        }
        self.word(TUPLE);
        self.word(REDUCE);
    }

    fn storage(&mut self, kind: &Kind, tensor: &Tensor<'_>, storage: usize) {
        self.word(MARK);
        self.text("storage");
        let (module, name) = kind.storage();
        self.global(module, name);
        self.text(&storage.to_string());
        self.text("cpu");
        self.int(match kind {
            Kind::Typed(_) => tensor.data.len() / tensor.dtype.bytes(),
            Kind::Untyped(_) => tensor.data.len(),
        });
        self.word(TUPLE);
        self.word(PERSISTENT_ID);
    }
}

/// How the elements are stored: types that torch added late have no typed storage.
enum Kind {
    Typed(&'static str),
    Untyped(&'static str),
}

impl Kind {
    fn of(dtype: Dtype) -> Kind {
        match dtype {
            Dtype::Bool => Kind::Typed("BoolStorage"),
            Dtype::I8 => Kind::Typed("CharStorage"),
            Dtype::I16 => Kind::Typed("ShortStorage"),
            Dtype::I32 => Kind::Typed("IntStorage"),
            Dtype::I64 => Kind::Typed("LongStorage"),
            Dtype::U8 => Kind::Typed("ByteStorage"),
            Dtype::F16 => Kind::Typed("HalfStorage"),
            Dtype::Bf16 => Kind::Typed("BFloat16Storage"),
            Dtype::F32 => Kind::Typed("FloatStorage"),
            Dtype::F64 => Kind::Typed("DoubleStorage"),
            Dtype::U16 | Dtype::U32 | Dtype::U64 => Kind::Untyped(dtype.name()),
        }
    }

    fn storage(&self) -> (&'static str, &'static str) {
        match self {
            Kind::Typed(storage) => ("torch", storage),
            Kind::Untyped(_) => ("torch.storage", "UntypedStorage"),
        }
    }

    fn maker(&self) -> &'static str {
        match self {
            Kind::Typed(_) => "_rebuild_tensor_v2",
            Kind::Untyped(_) => "_rebuild_tensor_v3",
        }
    }
}

/// The distance of neighbours along each axis, in elements; the last index is the fastest.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1);
    }
    strides
}
