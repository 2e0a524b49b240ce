"""The ``torch.autograd.Function`` s that a chunk's large tensors go through: the formulas' fast twins. Torch only.

- :mod:`word_product`: the products with the words' vectors, (n, V).
- :mod:`inner_product`, :mod:`distance`, :mod:`gaussian`, :mod:`hyperbolic`: kernels' scores from these, beside the
  files of the same names in ``fairseq_kernels.kernels``, which have the formulas.
- :mod:`mixture_nll`: from scores to losses.

The buffer rule. Functions in here (and KerBS's pass, its own) overwrite tensors of (n, V), nothing else does:

1. A kernel's Function may overwrite its products and the gradient that its backward receives. Its backward does not
   read the scores that it returned. It must not overwrite word and context terms, since other chunks use them.
2. The loss may overwrite scores that come from such a Function. It may also overwrite lin's products, which are its
   scores. It copies the scores of a plain formula, since autograd may still need them.
3. Products have version counters of their own though they share a block of memory, so that a formula in one component
   does not notice what a Function does to the product of another.

As their backward overwrites what it needs, they have no second derivatives. They run inside of ``ChunkedLoss``, whose
graph they are no part of, and which takes second derivatives from the formulas.
"""
