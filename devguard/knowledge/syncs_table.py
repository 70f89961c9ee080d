"""Every aten op that makes the host wait for an accelerator, and when: data only, imports no torch.

A wait is one that ``torch.cuda.set_sync_debug_mode`` or ``torch.cuda._gpu_trace`` would report, or that a kernel is known to make
by other means. Ops that PyTorch builds from others (``item``, ``where(condition)``, ``linalg.cholesky`` …) are not listed: a dispatch
mode meets their parts. Ops that look as if they waited and don't are in `NEVER`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["scalar-read", "host-copy", "dynamic-shape", "library"]
Certainty = Literal["sure", "likely", "unsure"]


@dataclass(frozen=True, slots=True)
class SyncOp:
    """One way in which one op waits.

    `when` names a condition of `syncs_conditions.py`; `subject` is the argument that the host waits for; `hidden` says what the op
    reads inside, for ops whose name does not show it. `overloads` empty means all; `since`, `until` are the first torch version it
    holds for and the first it no longer does.
    """

    op: str
    rule: str
    kind: Kind
    when: str = "subject"
    subject: str = "self"
    hidden: str = ""
    advice: str = ""
    overloads: tuple[str, ...] = ()
    certainty: Certainty = "sure"
    source: str = ""
    since: str = ""
    until: str = ""


_TEST = "test/test_torch.py test_sync_warning"
_MASK = "aten/src/ATen/native/IndexingUtils.h expandTensors"
_LINALG = "aten/src/ATen/native/BatchLinearAlgebra.cpp _linalg_check_errors"
_COPY = "aten/src/ATen/native/cuda/Copy.cu copy_kernel_cuda"
_SUMMARY = "aten/src/ATen/native/cuda/SummaryOps.cu"
_CHECKED = "the check whether the factorization succeeded"

# fmt: off
_SCALAR_READS = (
    SyncOp("aten::_local_scalar_dense", "DG201", "scalar-read",
           source="aten/src/ATen/native/cuda/CUDAScalar.cu _local_scalar_dense_cuda"),
    SyncOp("aten::linspace", "DG201", "scalar-read", when="bounds", subject="start",
           overloads=("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"),
           advice="size", source="aten/src/ATen/native/RangeFactories.cpp"),
    SyncOp("aten::logspace", "DG201", "scalar-read", when="bounds", subject="start",
           overloads=("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"),
           advice="size", source="aten/src/ATen/native/RangeFactories.cpp"),
    SyncOp("aten::fill_", "DG201", "scalar-read", when="foreign value", subject="value", overloads=("Tensor",),
           certainty="likely", source="aten/src/ATen/native/Fill.cpp"),
)

_HOST_COPIES = (
    SyncOp("aten::_to_copy", "DG202", "host-copy", when="blocking to host", source=_COPY),
    SyncOp("aten::_to_copy", "DG302", "host-copy", when="blocking to device", source=_COPY),
    SyncOp("aten::copy_", "DG301", "host-copy", when="blocking copy", subject="src", source=_COPY),
    SyncOp("aten::index", "DG301", "host-copy", when="host index", subject="indices", source=_TEST),
    SyncOp("aten::index_put_", "DG301", "host-copy", when="host index or value", subject="indices",
           source="aten/src/ATen/native/TensorAdvancedIndexing.cpp _index_put_impl_"),
    SyncOp("aten::index_put", "DG301", "host-copy", when="host index or value", subject="indices",
           source="aten/src/ATen/native/TensorAdvancedIndexing.cpp _index_put_impl_"),
    SyncOp("aten::where", "DG301", "host-copy", when="host operand", subject="other", overloads=("self",),
           source="aten/src/ATen/native/TensorCompare.cpp where"),
)

_DYNAMIC_SHAPES = (
    SyncOp("aten::nonzero", "DG203", "dynamic-shape", advice="nonzero",
           source="aten/src/ATen/native/cuda/Nonzero.cu nonzero_cuda_out_impl"),
    SyncOp("aten::index", "DG203", "dynamic-shape", when="masks", hidden="nonzero of the mask", advice="mask",
           source=_MASK),
    SyncOp("aten::index_put_", "DG203", "dynamic-shape", when="masks and a value on the device",
           hidden="nonzero of the mask", advice="mask assignment", source=_TEST),
    SyncOp("aten::index_put", "DG203", "dynamic-shape", when="masks and a value on the device",
           hidden="nonzero of the mask", advice="mask assignment", source=_TEST),
    SyncOp("aten::masked_select", "DG203", "dynamic-shape", hidden="nonzero of the mask", advice="mask",
           source="aten/src/ATen/native/cuda/IndexKernel.cpp"),
    SyncOp("aten::_unique2", "DG203", "dynamic-shape", advice="unique",
           source="aten/src/ATen/native/cuda/UniqueCub.cu"),
    SyncOp("aten::_unique", "DG203", "dynamic-shape", advice="unique",
           source="aten/src/ATen/native/cuda/UniqueCub.cu"),
    SyncOp("aten::unique_consecutive", "DG203", "dynamic-shape", advice="unique",
           source="aten/src/ATen/native/cuda/UniqueCub.cu"),
    SyncOp("aten::unique_dim", "DG203", "dynamic-shape", advice="unique", certainty="likely",
           source="aten/src/ATen/native/cuda/Unique.cu (inside thrust: no debug mode reports it)"),
    SyncOp("aten::unique_dim_consecutive", "DG203", "dynamic-shape", advice="unique", certainty="likely",
           source="aten/src/ATen/native/cuda/Unique.cu (inside thrust: no debug mode reports it)"),
    SyncOp("aten::repeat_interleave", "DG203", "dynamic-shape", when="no output_size", subject="repeats",
           overloads=("Tensor", "Tensor_out"), advice="repeat_interleave",
           source="aten/src/ATen/native/Repeat.h; " + _TEST),
    SyncOp("aten::bincount", "DG203", "dynamic-shape", when="not empty", hidden="min() and max() of its input",
           advice="bincount", source=_SUMMARY + " _bincount_cuda_template"),
    SyncOp("aten::_to_sparse", "DG203", "dynamic-shape", hidden="nonzero", advice="sparse",
           source="aten/src/ATen/native/TensorConversions.cpp"),
    SyncOp("aten::_to_sparse_csr", "DG203", "dynamic-shape", hidden="nonzero", advice="sparse",
           source="aten/src/ATen/native/TensorConversions.cpp"),
    SyncOp("aten::_to_sparse_csc", "DG203", "dynamic-shape", hidden="nonzero", advice="sparse",
           source="aten/src/ATen/native/TensorConversions.cpp"),
    SyncOp("aten::_to_sparse_bsr", "DG203", "dynamic-shape", hidden="nonzero", advice="sparse",
           source="aten/src/ATen/native/TensorConversions.cpp"),
    SyncOp("aten::_to_sparse_bsc", "DG203", "dynamic-shape", hidden="nonzero", advice="sparse",
           source="aten/src/ATen/native/TensorConversions.cpp"),
    SyncOp("torchvision::nms", "DG203", "dynamic-shape", subject="dets", hidden="the kept boxes, chosen on the host",
           advice="nms", certainty="likely", source="torchvision/csrc/ops/cuda/nms_kernel.cu"),
    SyncOp("aten::_coalesce", "DG203", "dynamic-shape", advice="sparse", certainty="likely",
           source="aten/src/ATen/native/sparse/cuda/SparseCUDATensor.cu"),
)

_HIDDEN = (
    SyncOp("aten::allclose", "DG205", "library", hidden="item() of the comparison", advice="equal",
           source="aten/src/ATen/native/TensorCompare.cpp allclose"),
    SyncOp("aten::equal", "DG205", "library", when="comparable", hidden="item() of the comparison", advice="equal",
           source="aten/src/ATen/native/cuda/Equal.cpp"),
    SyncOp("aten::histc", "DG205", "library", when="default range", hidden="min() and max() of its input",
           advice="histc", source=_SUMMARY + " _histc_cuda_template"),
    SyncOp("aten::segment_reduce", "DG205", "library", when="checked lengths", subject="lengths",
           hidden="the check of `lengths`", advice="segment_reduce",
           source="aten/src/ATen/native/SegmentReduce.cpp"),
    SyncOp("aten::normal", "DG205", "library", subject="std",
           overloads=("Tensor_Tensor", "float_Tensor", "Tensor_Tensor_out", "float_Tensor_out"),
           hidden="the check that every std is >= 0", advice="normal",
           source="aten/src/ATen/native/DistributionTemplates.h CHECK_NORMAL_TENSOR_STD"),
    SyncOp("aten::nanmedian", "DG205", "library", overloads=("", "out"), hidden="the count of NaNs",
           certainty="likely", source="aten/src/ATen/native/cuda/Sorting.cpp median_impl"),
    SyncOp("aten::mode", "DG205", "library", when="long slices", hidden="a sort per slice (longer than 2048)",
           certainty="likely", source="aten/src/ATen/native/cuda/TensorModeKernel.cpp"),
    SyncOp("aten::masked_fill", "DG205", "scalar-read", subject="value", overloads=("Tensor",),
           hidden="item() of the fill value", advice="fill value", certainty="likely",
           source="aten/src/ATen/native/cuda/Indexing.cu masked_fill__cuda"),
    SyncOp("aten::masked_fill_", "DG205", "scalar-read", subject="value", overloads=("Tensor",),
           hidden="item() of the fill value", advice="fill value", certainty="likely",
           source="aten/src/ATen/native/cuda/Indexing.cu masked_fill__cuda"),
    SyncOp("aten::index_fill", "DG205", "scalar-read", subject="value", overloads=("int_Tensor",),
           hidden="item() of the fill value", advice="fill value",
           source="aten/src/ATen/native/TensorAdvancedIndexing.cpp index_fill_"),
    SyncOp("aten::index_fill_", "DG205", "scalar-read", subject="value", overloads=("int_Tensor",),
           hidden="item() of the fill value", advice="fill value",
           source="aten/src/ATen/native/TensorAdvancedIndexing.cpp index_fill_"),
    SyncOp("aten::_linalg_check_errors", "DG205", "library", subject="info", hidden=_CHECKED, advice="linalg",
           source=_LINALG),
    SyncOp("aten::linalg_cholesky_ex", "DG205", "library", when="check_errors", hidden=_CHECKED, advice="linalg",
           source=_LINALG),
    SyncOp("aten::linalg_inv_ex", "DG205", "library", when="check_errors", subject="A", hidden=_CHECKED,
           advice="linalg", source=_LINALG),
    SyncOp("aten::_linalg_solve_ex", "DG205", "library", when="check_errors", subject="A", hidden=_CHECKED,
           advice="linalg", source=_LINALG),
    SyncOp("aten::linalg_lu_factor_ex", "DG205", "library", when="check_errors", subject="A", hidden=_CHECKED,
           advice="linalg", source=_LINALG),
    SyncOp("aten::linalg_ldl_factor_ex", "DG205", "library", when="check_errors", hidden=_CHECKED, advice="linalg",
           source=_LINALG),
    SyncOp("aten::cholesky", "DG205", "library", until="2.14", hidden=_CHECKED, advice="linalg", source=_LINALG),
    SyncOp("aten::_linalg_svd", "DG205", "library", subject="A", hidden=_CHECKED, advice="decomposition",
           source=_LINALG),
    SyncOp("aten::linalg_pinv", "DG205", "library", overloads=("atol_rtol_tensor", "atol_rtol_tensor_out"),
           hidden="an SVD and " + _CHECKED, advice="decomposition", source=_LINALG),
    SyncOp("aten::_linalg_eigh", "DG205", "library", subject="A", hidden=_CHECKED, advice="decomposition",
           source=_LINALG),
    SyncOp("aten::linalg_eig", "DG205", "library", hidden="the check that all values are finite, and " + _CHECKED,
           advice="decomposition", source=_LINALG),
    SyncOp("aten::_linalg_eigvals", "DG205", "library",
           hidden="the check that all values are finite, and " + _CHECKED, advice="decomposition", source=_LINALG),
    SyncOp("aten::linalg_lstsq", "DG205", "library", hidden=_CHECKED, advice="decomposition", source=_LINALG),
    SyncOp("aten::linalg_matrix_exp", "DG205", "library", hidden="the norms, copied to the host", advice="",
           source="aten/src/ATen/native/LinearAlgebra.cpp linalg_matrix_exp"),
    SyncOp("aten::_ctc_loss", "DG205", "library", subject="input_lengths", overloads=("Tensor", "Tensor_out"),
           hidden="the lengths, copied to the host", advice="ctc_loss", source="aten/src/ATen/native/LossCTC.cpp"),
    SyncOp("aten::_nested_tensor_from_mask_left_aligned", "DG205", "library", subject="mask",
           hidden="the check whether the mask is left-aligned", advice="nested mask",
           source="aten/src/ATen/native/nested/NestedTensorMath.cpp"),
    SyncOp("aten::_nested_tensor_from_mask", "DG205", "library", subject="mask",
           hidden="the sizes of the mask, copied to the host", advice="nested mask", certainty="likely",
           source="aten/src/ATen/native/nested/NestedTensorMath.cpp"),
)
# fmt: on

SYNC_OPS: tuple[SyncOp, ...] = _SCALAR_READS + _HOST_COPIES + _DYNAMIC_SHAPES + _HIDDEN

# Said to wait by older lists, or looking like it, and checked not to.
NEVER: frozenset[str] = frozenset(
    {
        "aten::multinomial",  # since pull request 134818
        "aten::_assert_async",
        "aten::masked_scatter_",
        "aten::bernoulli_",
        "aten::randperm",
        "aten::any",
        "aten::all",
        "aten::sort",
        "aten::topk",
        "aten::median",
        "aten::kthvalue",
        "aten::searchsorted",
        "aten::bucketize",
        "aten::linalg_qr",
        "aten::_linalg_det",
        "aten::_linalg_slogdet",
        "aten::linalg_lu",
        "aten::linalg_solve_triangular",
        "aten::nonzero_static",
        "aten::embedding",
        "aten::_embedding_bag",
    }
)
