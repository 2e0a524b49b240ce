"""The output layers by their names of ``--output-layer``, each with its criterion. Loads nothing else."""

CRITERIONS = {
    "kernels": "kernel_mixture_cross_entropy",
    "taylor": "log_taylor_softmax",
    "spherical": "log_spherical_softmax",
    "squared-error": "squared_error_of_outputs",
    "softmax-bound": "softmax_upper_bound",
    "kerbs": "kerbs_cross_entropy",
}
SPHERICAL = ("taylor", "spherical", "squared-error", "softmax-bound")  # never compute all words' outputs
