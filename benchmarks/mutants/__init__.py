"""Mutation runs: does a test fail when one line of the product is wrong?"""
