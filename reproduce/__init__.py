"""Write the pages of the documentation, and the PDF report, from the results of ``kernel-bandits reproduce``.

The studies, figures and claims themselves are ``kernel_bandits_lab.reproduce``.
"""
