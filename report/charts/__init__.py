"""Charts of answers, each made of the document of an answer: for pages, notebooks, and files of SVG and PNG."""
